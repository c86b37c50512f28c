"""Time-outs, pings, gaps and asking again, on a clock of the test's own: no socket, no waiting."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_messages as golden
import pytest
from client.conformance.fake_turns import BUNDLE

from animegamer_client import (
    Accepted,
    Character,
    Done,
    Person,
    Progress,
    ServerRefused,
    Understood,
    Welcome,
)
from animegamer_client.calls import Call, TurnCall
from animegamer_client.codec import Message, encode
from animegamer_client.fields import read
from animegamer_client.options import Options
from animegamer_client.protocol_state import MAX_BACKOFF_S, ProtocolState
from animegamer_client.requests import export, new_turn, page, ping, replay
from animegamer_client.responses import SessionInfo

TIMEOUT_S = 8.0


class Talk:
    """A protocol state, its clock, and a server that the test plays."""

    def __init__(self) -> None:
        self.now = 100.0
        self.state = ProtocolState("tcp://127.0.0.1:1", TIMEOUT_S, Message("hello"), clock=lambda: self.now)
        self.sent: list[Message] = []
        self.opened = 0

    def turn(self, session: str = "s1") -> TurnCall:
        return new_turn(session_info(session), "Mia waves.", None, None)

    def pass_s(self, seconds: float, answer_pings: bool = False) -> None:
        for _ in range(round(seconds * 4)):
            self.now += 0.25
            self.state.tick()
            for kind in self.flush():
                if kind == "ping" and answer_pings:
                    self.say(Message("pong", parent=self.asked("ping").id))

    def flush(self) -> list[str]:
        if self.state.wants_socket:
            self.state.opened()
            self.opened += 1
        new = self.state.outgoing()
        self.sent += new
        return [message.type for message in new]

    def say(self, *messages: Message) -> None:
        for message in messages:
            self.state.received(encode(message))

    def greet(self) -> None:
        self.flush()
        hello = [message for message in self.sent if message.type == "hello"][-1]
        fields = {"version": 1, "server": "s", "protocol": "1.0", "bundle": BUNDLE, "capabilities": [], "limits": {}}
        self.say(Message("welcome", {**fields, "state": "ready"}, parent=hello.id))

    def asked(self, kind: str) -> Message:
        return [message for message in self.sent if message.type == kind][-1]

    def kinds(self) -> list[str]:
        return [message.type for message in self.sent]


@pytest.fixture
def talk() -> Talk:
    return Talk()


def session_info(session: str = "s1") -> SessionInfo:
    return SessionInfo(session, f"token-{session}", 3, 2, 0, Character(50, 50, 50))


def event(kind: str, seq: int | None, **fields: Any) -> Message:
    return Message(kind, fields, session="s1", turn=1, seq=seq)


def accepted(place: int = 0) -> Message:
    return event("accepted", 0, turn_id="t", place=place, estimate_s=1.0, instruction="Mia waves.", replayed=False)


def progress(seq: int) -> Message:
    return event("progress", seq, step=seq, steps=9, seconds_left=0.0)


def done(seq: int) -> Message:
    stages = dict.fromkeys(("queue", "predictor", "denoiser", "vae", "total"), 0.0)
    return event("done", seq, seconds=stages, turns=1)


def seqs(call: TurnCall) -> list[int]:
    return [found.seq for found in call.events]


def running_turn(talk: Talk, place: int = 0) -> TurnCall:
    call = talk.turn()
    talk.state.start(call)
    talk.greet()
    talk.flush()
    talk.say(replace(accepted(place), parent=talk.asked("turn").id))
    return call


def test_replay_from_beyond_the_end_of_a_turn_is_over_at_once(talk: Talk) -> None:
    call = replay(session_info(), 1, after_seq=99)
    talk.state.start(call)
    talk.greet()
    talk.say(done(6))
    assert call.ended and call.error is None and [type(event) for event in call.events] == [Done]


def test_time_the_program_spends_elsewhere_is_not_the_servers_silence(talk: Talk) -> None:
    call = running_turn(talk)
    for seq in range(1, 4):
        talk.now += 100 * TIMEOUT_S
        talk.say(progress(seq))
        talk.state.tick()
    assert seqs(call) == [0, 1, 2, 3] and not call.ended and talk.opened == 1


def test_each_game_is_opened_on_a_new_connection_once(talk: Talk) -> None:
    first, second, log = talk.turn("s1"), talk.turn("s2"), page(session_info("s2"), None)
    for call in (first, second, log):
        talk.state.start(call)
    talk.greet()
    assert talk.flush() == ["open", "turn", "open", "turn", "list"]
    talk.state.lost("the connection was lost")
    talk.pass_s(1)
    talk.greet()
    assert talk.flush() == ["open", "turn", "open", "turn", "list"]
    tokens = [message.fields["token"] for message in talk.sent[-5:]]
    assert tokens == ["token-s1", "token-s1", "token-s2", "token-s2", "token-s2"]


def test_connections_that_keep_failing_are_made_ever_more_seldom(talk: Talk) -> None:
    talk.state.start(ping())
    at = []
    for _ in range(4 * 60):
        talk.now += 0.25
        talk.state.tick()
        if talk.state.wants_socket:
            at.append(talk.now)
            talk.state.opened()
            talk.state.lost("the connection was lost")
        if len(talk.state.outgoing()) > 1:
            raise AssertionError("nothing but hello is sent before the welcome")
    gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
    assert gaps == sorted(gaps) and gaps[-1] == MAX_BACKOFF_S


def test_error_without_a_parent_ends_every_call(talk: Talk) -> None:
    call, other = running_turn(talk), page(session_info("s2"), None)
    talk.state.start(other)
    talk.say(Message("error", {"code": "protocol", "text": "what was that"}))
    for ended in (call, other):
        assert isinstance(ended.error, ServerRefused) and ended.error.code == "protocol"


def test_error_of_an_earlier_turn_does_not_end_this_one(talk: Talk) -> None:
    call = running_turn(talk)
    talk.say(Message("error", {"code": "cancelled", "text": "stopped"}, session="s1", turn=7))
    talk.say(Message("error", {"code": "cancelled", "text": "stopped"}, session="s9", turn=1))
    assert not call.ended
    talk.say(Message("error", {"code": "cancelled", "text": "stopped"}, session="s1", turn=1))
    assert isinstance(call.error, ServerRefused)


def test_export_waits_for_a_starting_server_but_is_not_repeated(talk: Talk) -> None:
    call: Call[Any] = export(session_info())
    talk.state.start(call)
    talk.greet()
    talk.flush()
    starting = {"code": "starting", "text": "warming up"}
    talk.say(Message("error", starting, parent=talk.asked("export").id, session="s1"))
    talk.pass_s(1, answer_pings=True)
    assert talk.kinds().count("export") == 2 and not call.ended
    talk.pass_s(2 * TIMEOUT_S, answer_pings=True)
    assert not call.ended, "an export is long"
    talk.state.lost("the connection was lost")
    talk.pass_s(0.25)
    talk.greet()
    assert talk.kinds().count("export") == 2 and call.error is not None and call.error.code == "connection_lost"


def test_client_brings_neither_runtime_nor_engine(tmp_path: Path) -> None:
    code = (
        "import sys, animegamer_client.aio, animegamer_client.__main__\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    folder = Path(__file__).parents[2] / "client" / "python"
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    for name in ("animegamer_rt", "onnxruntime", "av", "rich", "torch", "PIL"):
        assert f"'{name}'" not in shown.stdout


def test_what_was_understood_is_told_once_however_often_the_turn_is_replayed(talk: Talk) -> None:
    call = running_turn(talk)
    (vector,) = [vector for vector in golden.MESSAGES if vector["name"] == "understood, with a notice"]
    understood = replace(event("understood", None, **vector["header"]["fields"]), parent=talk.asked("turn").id)
    talk.say(understood, progress(2))
    assert talk.flush() == ["replay"]
    talk.say(understood, progress(1), progress(2), done(3))
    assert [type(found) for found in call.events] == [Accepted, Understood, Progress, Progress, Done]
    told = call.events[1]
    assert isinstance(told, Understood)
    assert told.people == (Person("Mia", "raincoat"), Person("Tobo", "everyday"))
    assert (told.motion, told.level, told.place, told.hour, told.position) == ("run", 5, "town", "night", "left")
    assert told.unknown == ("explodes",) and told.notice is not None and told.notice.startswith("not understood")


def test_a_client_says_its_minor_version_and_reads_what_a_bundle_knows() -> None:
    assert Options().hello().fields["minor"] == 3
    (vector,) = [vector for vector in golden.MESSAGES if vector["name"].startswith("welcome, of a bundle that reads")]
    bundle = read(Welcome, vector["header"]["fields"]).bundle
    assert (bundle.people, bundle.hours) == (("Mia", "Tobo"), ("day", "night"))
