"""The worker as a live process: talks to it as the front process does, and does to it what may happen to it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

import fakes
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.cli import main
from animegamer_rt.errors import DeviceLostError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire import WORKER_LIMITS, Message, decode, encode
from animegamer_rt.serving.worker.loop import Worker
from animegamer_rt.state.game import CharacterState

TEXTS = ["Mia waves.", "Mia runs.", "Tobo runs.", "Tobo flies.", "Mia flies."]
STRENGTHS = ("motion_level", "social", "entertainment", "stamina")
SEED, WINDOW = 7, 2
PATIENCE_S = 120
"""How long to wait for what must happen; only a broken worker makes a test wait so long."""


class Front:
    """The other end of a worker's socket."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.process: subprocess.Popen[bytes] | None = None

    def send(self, message: Message) -> None:
        self.socket.send_multipart(encode(message))

    def next(self) -> Message:
        assert self.socket.poll(1000 * PATIENCE_S), "the worker says nothing"
        return decode(self.socket.recv_multipart(), WORKER_LIMITS, check=False)

    def answers(self) -> Iterator[Message]:
        """What is said of one job, up to its end."""
        while True:
            message = self.next()
            yield message
            if message.type in ("finished", "failed"):
                return

    def play(self, job: Message) -> list[Message]:
        self.send(job)
        return list(self.answers())


def turn_job(text: str, turn: int = 1, name: str = "j", **changes: Any) -> Message:
    wanted: dict[str, Any] = {"kind": "turn", "instruction": text, "seed": SEED, "history_turns": WINDOW, "first": 0}
    wanted |= {"log": [], "shots": [], "character": asdict(CharacterState())}
    return Message("job", wanted | changes, id=name, session="s", turn=turn)


def frames_of(messages: list[Message]) -> np.ndarray:
    frames = [np.frombuffer(message.buffers[0], np.uint8) for message in messages if message.type == "frame"]
    return np.stack(frames)


@contextlib.contextmanager
def started(*options: str, log: Path | None = None) -> Iterator[Front]:
    """A worker process with the socket it connects to; it is gone afterwards."""
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        socket = stack.enter_context(context.socket(zmq.DEALER))
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        command = [sys.executable, "-m", "animegamer_rt.serving.worker", "--front", f"tcp://127.0.0.1:{port}", *options]
        environment = os.environ | {"ANIMEGAMER_WORKER_SECRET": "open sesame"}
        stderr = stack.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=stderr, env=environment)
        stack.callback(process.wait, PATIENCE_S)
        stack.callback(process.kill)
        assert process.stdin is not None
        stack.callback(process.stdin.close)
        front = Front(socket)
        front.process = process
        yield front


def ready(front: Front) -> dict[str, Any]:
    loading, message = front.next(), front.next()
    assert (loading.type, message.type) == ("loading", "ready")
    assert loading.fields["secret"] == message.fields["secret"] == "open sesame"
    return dict(message.fields)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


@pytest.fixture(scope="module")
def live(bundle: Bundle) -> Iterator[Front]:
    """One worker with real engines for all tests that leave it alive, which each of them checks."""
    with started("--bundle", str(bundle.folder), "--threads", "1") as front:
        facts = ready(front)
        assert facts["warmup_s"] > 0 and facts["resident_mib"] > 10
        yield front


@pytest.fixture
def front(live: Front) -> Iterator[Front]:
    yield live
    assert live.play(turn_job("Mia waves.", name="still alive"))[-1].type == "finished"


@pytest.fixture(scope="module")
def game(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same game, played by `animegamer-rt play`."""
    folder = tmp_path_factory.mktemp("game")
    (folder / "story.txt").write_text("\n".join(TEXTS))
    command = ["play", "--bundle", str(bundle.folder), "--instructions", str(folder / "story.txt")]
    assert main([*command, "--seed", str(SEED), "--history-turns", str(WINDOW), "--out", str(folder / "out")]) == 0
    played: dict[str, Any] = json.loads((folder / "out" / "game.json").read_text(encoding="utf-8"))
    return played


def settled_of(messages: list[Message]) -> Message:
    (settled,) = [message for message in messages if message.type == "settled"]
    return settled


def play_game(front: Front) -> tuple[list[list[Message]], list[list[Any]], dict[int, bytes]]:
    """Plays all texts as the server does: the window's turns and shots go along with each job."""
    log: list[list[Any]] = []
    shots: dict[int, bytes] = {}
    character, turns = asdict(CharacterState()), []
    for turn, text in enumerate(TEXTS, 1):
        first = max(0, turn - 1 - WINDOW)
        window = {number: shot for number, shot in shots.items() if number > first}
        job = turn_job(text, turn, first=first, log=log[first:], shots=list(window), character=character)
        front.socket.send_multipart([*encode(job), *window.values()])
        turns.append(list(front.answers()))
        settled = settled_of(turns[-1])
        log.append([text, *(settled.fields[name] for name in STRENGTHS)])
        shots |= dict(zip(settled.fields["shots"], settled.buffers, strict=True))  # type: ignore[arg-type]
        character = settled.fields["character"]
    return turns, log, shots


def test_frames_and_states_are_those_of_play(front: Front, game: dict[str, Any]) -> None:
    turns, log, _ = play_game(front)
    hashes = [hashlib.sha256(frames_of(messages).tobytes()).hexdigest() for messages in turns]
    assert hashes == [turn["frames_sha256"] for turn in game["turns"]]
    assert [dict(zip(STRENGTHS, row[1:], strict=True)) for row in log] == [turn["state"] for turn in game["turns"]]
    shown = [messages[0].fields["shown"] for messages in turns]
    assert shown == [turn["character"] for turn in game["turns"]]


def test_missing_shots_are_predicted_again_to_the_same_frames(front: Front) -> None:
    turns, log, shots = play_game(front)
    character = settled_of(turns[3]).fields["character"]
    again = front.play(turn_job(TEXTS[4], 5, log=log[:4], character=character))
    assert (frames_of(again) == frames_of(turns[4])).all()
    assert settled_of(again).fields["shots"] == [3, 4, 5]
    assert settled_of(again).buffers == (shots[3], shots[4], shots[5])


def test_an_export_is_the_game_of_play(front: Front, game: dict[str, Any], tmp_path: Path) -> None:
    _, log, _ = play_game(front)
    wanted = {"kind": "export", "folder": str(tmp_path / "out"), "seed": SEED, "history_turns": WINDOW}
    wanted |= {"log": log, "seeds": [SEED] * len(log)}
    *progress, end = front.play(Message("job", wanted, id="e", session="s"))
    assert {message.type for message in progress} == {"progress"}
    assert end.type == "finished" and end.parent == "e"
    exported = json.loads((tmp_path / "out" / "game.json").read_text(encoding="utf-8"))
    for turn, expected in zip(exported["turns"], game["turns"], strict=True):
        assert {**turn, "seconds": None} == {**expected, "seconds": None}
    assert {key: exported[key] for key in ("bundle", "plan", "seed")} == {
        key: game[key] for key in ("bundle", "plan", "seed")
    }
    assert sorted(end.fields["files"]) == sorted(file.name for file in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        (turn_job(TEXTS[0], codec="gif"), "config", "codec: not a known value"),
        (turn_job(TEXTS[0], turn=2), "session", "not of the game's next turn"),
        (turn_job(TEXTS[0], kind="dance"), "config", "kind: not a known value"),
        (turn_job("word " * 3000), "instruction", "does not fit the model's window"),
        (Message("job", {}, id="j", session="s", turn=1), "config", "kind: not a known value"),
        (Message("job", {"kind": "export"}, id="j", session="s", turn=1), "config", "is missing"),
    ],
)
def test_a_job_that_fails_is_answered(front: Front, job: Message, code: str, said: str) -> None:
    (failed,) = front.play(job)
    assert (failed.type, failed.session, failed.turn, failed.parent) == ("failed", "s", job.turn, "j")
    assert failed.fields["code"] == code
    assert said in failed.fields["text"]


@pytest.mark.parametrize(
    "frames",
    [
        [b"garbage"],
        [b"", b"", b""],
        [b"AGRT\x01"],
        [b"AGRT\x02", b"\x80"],
        [b"AGRT\x01", b"\xdd\xff\xff\xff\xff"],
        [b"AGRT\x01", b"\x80"],
        encode(Message("dance")),
        encode(Message("cancel", session="nobody", turn=3)),
        encode(Message("cancel")),
    ],
)
def test_other_messages_are_ignored(front: Front, frames: list[bytes]) -> None:
    front.socket.send_multipart(frames)
    assert [message.type for message in front.play(turn_job(TEXTS[0]))][-1] == "finished"


def test_jobs_that_wait_are_done_in_order_and_can_be_cancelled(front: Front) -> None:
    for name in ("a", "b", "c"):
        front.send(turn_job(TEXTS[0], name=name))
    front.send(Message("cancel", id="b", session="s", turn=1))
    ends = [list(front.answers())[-1] for _ in range(3)]
    assert [end.parent for end in ends] == ["a", "b", "c"]
    assert ends[0].type == ends[2].type == "finished"
    # The worker may have been done with it before it heard.
    assert ends[1].type == "finished" or ends[1].fields["code"] == "cancelled"


def test_ctrl_c_is_left_to_the_front(front: Front) -> None:
    assert front.process is not None
    if sys.platform != "win32":
        front.process.send_signal(signal.SIGINT)
    assert front.play(turn_job(TEXTS[0]))[-1].type == "finished"


@pytest.fixture
def slow(bundle: Bundle) -> Iterator[Front]:
    """A worker whose turns take long enough to do something meanwhile."""
    with started("--bundle", str(bundle.folder), "--plan", "exact", "--device", "simulated:2") as front:
        ready(front)
        yield front


def begun(front: Front) -> None:
    """Sends a job and waits for its first step."""
    front.send(turn_job(TEXTS[0]))
    assert front.next().type == "state"
    assert front.next().type == "progress"


def test_a_cancelled_turn_ends_and_the_next_one_is_played(slow: Front) -> None:
    begun(slow)
    slow.send(Message("cancel", id="j", session="s", turn=1))
    *steps, end = slow.answers()
    assert {message.type for message in steps} <= {"progress"}
    assert (end.type, end.fields["code"]) == ("failed", "cancelled")
    assert slow.play(turn_job(TEXTS[0]))[-1].type == "finished"


@pytest.mark.parametrize("how", ["stop", "stdin", "terminate"])
def test_a_worker_in_the_middle_of_a_turn_can_be_ended(slow: Front, how: str) -> None:
    begun(slow)
    process = slow.process
    assert process is not None and process.stdin is not None
    if how == "stop":
        slow.send(Message("stop"))
        assert [*slow.answers()][-1].fields["code"] == "cancelled"
    elif how == "stdin":
        process.stdin.close()
    else:
        process.terminate()
    code = process.wait(PATIENCE_S)
    assert (code != 0) == (how == "terminate")
    while slow.socket.poll(0):
        assert decode(slow.socket.recv_multipart(), WORKER_LIMITS, check=False).type == "progress"


@pytest.mark.parametrize("how", ["stop", "stdin"])
def test_an_idle_worker_can_be_ended(bundle: Bundle, how: str) -> None:
    with started("--bundle", str(bundle.folder), "--device", "simulated:0") as front:
        ready(front)
        assert front.process is not None and front.process.stdin is not None
        front.send(Message("stop")) if how == "stop" else front.process.stdin.close()
        assert front.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bundle", "no-such-bundle"], "no bundle 'no-such-bundle'"),
        (["--device", "tensorrt", "--precision", "fp8"], "precision and attention can be chosen for PyTorch alone"),
        (["--plan", "exakt"], "has no plan 'exakt'"),
    ],
)
def test_what_it_cannot_open_it_says_in_one_line(bundle: Bundle, tmp_path: Path, options: list[str], said: str) -> None:
    with started("--bundle", str(bundle.folder), *options, log=tmp_path / "log") as front:
        assert front.process is not None
        assert front.process.wait(PATIENCE_S) == 2
    (line,) = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert line.startswith("animegamer_rt.serving.worker: ERROR: ") and said in line


@contextlib.contextmanager
def in_a_thread(bundle: Bundle, denoiser: fakes.FakeDenoiser) -> Iterator[Front]:
    """The worker's loop in this process, so that a test can hold it at a certain step."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as ours, context.socket(zmq.DEALER) as theirs:
        ours.bind("inproc://worker")
        theirs.connect("inproc://worker")
        worker = Worker(theirs, Pipeline.open(bundle, fakes.fake_engines(denoiser=denoiser), "exact"))
        thread = threading.Thread(target=worker.run)
        thread.start()
        front = Front(ours)
        try:
            yield front
        finally:
            front.send(Message("stop"))
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def told_in_the_second_step(bundle: Bundle, denoiser: fakes.HeldDenoiser, message: Message) -> list[Message]:
    """What a turn says when the worker gets a message in the middle of its second step."""
    with in_a_thread(bundle, denoiser) as front:
        front.send(turn_job(TEXTS[0]))
        assert denoiser.reached.wait(PATIENCE_S)
        front.send(message)
        denoiser.let_go.set()
        return list(front.answers())


@pytest.mark.parametrize("wish", [{"id": "j"}, {"session": "s", "turn": 1}])
def test_no_step_is_begun_after_a_cancel(bundle: Bundle, wish: dict[str, Any]) -> None:
    denoiser = fakes.HeldDenoiser(1, PATIENCE_S)
    messages = told_in_the_second_step(bundle, denoiser, Message("cancel", **wish))
    assert [message.type for message in messages] == ["state", "progress", "failed"]
    assert messages[-1].fields["code"] == "cancelled"
    assert len(denoiser.steps) == 2


@pytest.mark.parametrize("wish", [{"id": "another"}, {"session": "s", "turn": 2}, {"session": "t", "turn": 1}])
def test_a_cancel_of_something_else_stops_nothing(bundle: Bundle, wish: dict[str, Any]) -> None:
    messages = told_in_the_second_step(bundle, fakes.HeldDenoiser(1, PATIENCE_S), Message("cancel", **wish))
    assert messages[-1].type == "finished"


def test_an_error_that_nobody_thought_of_ends_the_job_only(bundle: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    denoiser = fakes.FakeDenoiser(fail_at=2)
    with in_a_thread(bundle, denoiser) as front:
        *_, failed = front.play(turn_job(TEXTS[0]))
        assert failed.fields == {"code": "internal", "text": "MemoryError: no memory for this step"}
        denoiser.fail_at = None
        assert front.play(turn_job(TEXTS[0]))[-1].type == "finished"
    assert "Traceback" in caplog.text


def test_a_lost_device_ends_the_worker_and_leaves_the_job_to_the_next_one(bundle: Bundle) -> None:
    denoiser = fakes.FakeDenoiser(fail_at=2, error=DeviceLostError("the GPU is lost to this process"))
    with zmq.Context() as context, context.socket(zmq.DEALER) as ours, context.socket(zmq.DEALER) as theirs:
        ours.bind("inproc://worker")
        theirs.connect("inproc://worker")
        front = Front(ours)
        front.send(turn_job(TEXTS[0]))
        with pytest.raises(DeviceLostError, match="the GPU is lost"):
            Worker(theirs, Pipeline.open(bundle, fakes.fake_engines(denoiser=denoiser), "exact")).run()
        said = []
        while ours.poll(0):
            said.append(front.next().type)
        assert said == ["state", "progress", "progress"]
