"""What requests are answered, with a worker that does what the test says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_scheduler import Server

from animegamer_rt.serving.server.exports import EXPORTS_KEPT
from animegamer_rt.serving.server.handlers import CONTROL, TURNS, RequestHandlers
from animegamer_rt.serving.server.instruction_filter import InstructionFilter
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import Message, encode
from animegamer_rt.serving.wire.worker_messages import FrameOptions


class Guest:
    """A connection that has said hello: the last answer is what it heard last."""

    def __init__(self) -> None:
        self.frame_options: FrameOptions | None = FrameOptions()
        self.heard: list[Message] = []

    def send(self, message: Message, delivery: str | None = None) -> None:
        self.heard.append(message)

    def send_error(self, error: Any, *about: object) -> None:
        self.heard.append(Message("error", {"code": error.code, "text": error.text, "do": error.do}))


class Front:
    """The request handlers before the jobs of `Server`, and one guest with one game."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.server, self.guest = server, Guest()
        manifest = SimpleNamespace(name="tiny", compatibility=SimpleNamespace(history_turns=2))
        self.status: Any = SimpleNamespace(
            bundle=SimpleNamespace(manifest=manifest, fingerprint="f"),
            state="ready",
            connections=1,
            welcome=dict,
            engines=None,
        )
        parts: tuple[Any, ...] = (
            self.status,
            server.store,
            server.queue,
            server.workers,
            server.scheduler,
            InstructionFilter(),
        )
        self.handlers = RequestHandlers(ServeOptions(**options), *parts)
        opened = self.ask("open", seed=7)
        self.session, self.token = opened.session, opened.fields["token"]

    def ask(self, type: str, socket: str = TURNS, **fields: Any) -> Message:
        """What is heard last after a request."""
        session = None
        if type not in ("open", "hello", "ping"):
            session, fields["token"] = self.session, self.token
        guest: Any = self.guest
        self.handlers.handle(guest, socket, encode(Message(type, fields, id="1", session=session)))
        return self.guest.heard[-1]

    def play(self, turn_id: str, text: str = "Mia waves.") -> Any:
        """Ask for a turn; its job, which is at the worker."""
        assert self.ask("turn", instruction=text, turn_id=turn_id).type == "accepted"
        return self.server.queue.running[0]

    def code(self, *request: Any, **fields: Any) -> str:
        """The code that a request is refused with."""
        return str(self.ask(*request, **fields).fields["code"])


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    with Store(tmp_path / "state") as store:
        yield Front(Server(store, tmp_path))


def test_a_stored_turn_is_not_seen_before_it_is_done(front: Front) -> None:
    first = front.play("one")
    front.server.finish(first)
    before = front.ask("open", token=front.token).fields
    second = front.play("two")
    front.server.send_result(second, social=3)
    assert front.server.stored(second) == 2
    opened = front.ask("open", token=front.token).fields
    assert opened == {**before, "running": {"turn": 2, "turn_id": "two"}} and opened["turns"] == 1
    assert [turn["turn_id"] for turn in front.ask("list").fields["turns"]] == ["one"]
    assert front.code("branch", turn=2) == "no_such_turn"
    assert front.ask("branch", turn=1).fields["turns"] == 1
    front.server.say(second, "finished", seconds={})
    opened = front.ask("open", token=front.token).fields
    assert opened["turns"] == 2 and opened["character"] != before["character"]
    assert front.ask("branch", turn=2).fields["turns"] == 2


def test_a_request_on_the_wrong_socket_is_told_the_right_port(front: Front) -> None:
    for request, socket, port in (("open", CONTROL, "below"), ("cancel", TURNS, "above")):
        answer = front.ask(request, socket)
        assert answer.fields["code"] == "unknown_type" and port in answer.fields["do"]


def test_exports_count_like_turns(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        front = Front(Server(store, tmp_path, turns_per_minute=2), turns_per_minute=2)
        front.server.finish(front.play("one"))
        front.ask("export")
        front.server.say(front.server.queue.running[0], "finished", files=[])
        assert front.code("export") == "rate_limited"


def test_a_session_keeps_its_newest_exports(front: Front) -> None:
    front.server.finish(front.play("one"))
    folders = []
    for _ in range(EXPORTS_KEPT + 2):
        front.ask("export")
        job: Any = front.server.queue.running[0]
        job.export_folder.mkdir(parents=True)
        front.server.say(job, "finished", files=[])
        folders.append(job.export_folder)
    assert len({*folders}) == len(folders)
    assert [folder for folder in folders if folder.is_dir()] == folders[-EXPORTS_KEPT:]


def test_half_an_export_does_not_stay_and_a_whole_one_stays_as_long_as_its_session(front: Front) -> None:
    def export() -> Any:
        front.ask("export")
        job: Any = front.server.queue.running[0]
        job.export_folder.mkdir(parents=True)
        (job.export_folder / "game.json").write_text("{}")
        return job

    front.server.finish(front.play("one"))
    whole = export()
    front.server.say(whole, "finished", files=["game.json"])
    half = export()
    front.server.say(half, "failed", code="cancelled", text="stopped")
    assert (
        whole.export_folder.is_dir() and not half.export_folder.exists() and whole.export_folder != half.export_folder
    )
    front.server.scheduler.exports.delete_sessions(["another"])
    assert whole.export_folder.is_dir()
    front.server.scheduler.exports.delete_sessions([front.session])
    assert not whole.export_folder.exists()
