"""The worker answers jobs with messages that clients may be sent, and with all that the server stores of a turn."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from PIL import Image
from planted import FRAME, plant
from worker_client import Game, WorkerClient, content, of_type, pictures, running

import fakes
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PLAY_ROLES
from animegamer_rt.cli import main
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import DeviceLostError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire.codec import SERVER_LIMITS, decode, encode
from animegamer_rt.serving.wire.worker_messages import TurnResult
from animegamer_rt.serving.worker import __main__ as worker_main
from animegamer_rt.serving.worker.encoders import Frame, JpegEncoder
from animegamer_rt.serving.worker.loop import Worker

SEED, WINDOW = 7, 2
TEXTS = ["Mia waves.", "Mia runs.", "Tobo runs.", "Tobo flies.", "Mia flies."]


@pytest.fixture
def pipeline(bundle: Bundle) -> Pipeline:
    return Pipeline.open(bundle, open_engines(bundle, EngineConfig("simulated:0")))


@pytest.fixture
def worker(pipeline: Pipeline) -> Any:
    with running(pipeline) as client:
        yield client
        assert client.play(Game().job(TEXTS[0], id="still alive"))[-1].type == "finished"


def test_turns_and_their_export_are_those_of_play(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text("\n".join(TEXTS))
    play = ["play", "--bundle", str(bundle.folder), "--instructions", str(tmp_path / "story.txt")]
    assert main([*play, "--seed", str(SEED), "--history-turns", str(WINDOW), "--out", str(tmp_path / "played")]) == 0
    played = json.loads((tmp_path / "played" / "game.json").read_text(encoding="utf-8"))
    with running(Pipeline.open(bundle, open_engines(bundle, EngineConfig(threads=1)))) as worker:
        game = Game(SEED, WINDOW)
        turns = [game.turn(worker, text) for text in TEXTS]
        *said, end = [message for job in game.export(str(tmp_path / "out")) for message in worker.play(job)]
    hashes = [hashlib.sha256(pictures(messages).tobytes()).hexdigest() for messages in turns]
    assert hashes == [turn["frames_sha256"] for turn in played["turns"]]
    assert [messages[0].fields["shown"] for messages in turns] == [turn["character"] for turn in played["turns"]]
    exported = json.loads((tmp_path / "out" / "game.json").read_text(encoding="utf-8"))
    for turn, expected in zip(exported["turns"], played["turns"], strict=True):
        assert {**turn, "seconds": None} == {**expected, "seconds": None}
    progress = [message for message in said if message.type == "progress"]
    assert {(message.type, message.fields["steps"]) for message in progress} == {("progress", len(TEXTS))}
    steps = [message.fields["step"] for message in progress]
    assert steps == sorted(steps) and progress[-1].fields["seconds_left"] == 0
    assert sorted(end.fields["files"]) == sorted(file.name for file in (tmp_path / "out").iterdir())


OPTIONS: list[dict[str, Any]] = [
    {"codec": "raw", "pixel_format": "bgra32", "flip": True, "clip": True},
    {"codec": "jpeg", "pixel_format": "rgba32", "jpeg_quality": 95, "clip": True},
    {"codec": "mp4"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_every_event_is_one_that_a_client_may_be_sent(worker: WorkerClient, options: dict[str, Any]) -> None:
    *said, end = worker.play(Game(**options).job(TEXTS[0]))
    events = [message for message in said if message.type != "turn_result"]
    for event in events:
        assert decode([bytes(frame) for frame in encode(event)], SERVER_LIMITS).fields == event.fields
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {(message.session, message.turn, message.parent) for message in [*said, end]} == {("s", 1, "j")}
    clips = [event.type for event in events].count("clip")
    frames = [] if options["codec"] == "mp4" else ["frame"] * 17
    others = [message.type for message in said if message.type not in ("frame", "clip")]
    assert others == ["state", *["progress"] * 3, "turn_result"]
    assert [event.type for event in events if event.type == "frame"] == frames
    last = [event.fields["last"] for event in of_type(events, "clip")]
    assert last == ([False] * (clips - 1) + [True] if options.get("clip") or options["codec"] == "mp4" else [])
    again = worker.play(Game(**options).job(TEXTS[0]))
    assert content(again) == content([*said, end])


def test_missing_shots_are_predicted_again_and_sent_first(worker: WorkerClient) -> None:
    game = Game()
    for text in TEXTS[:4]:
        game.turn(worker, text)
    straight, again = worker.play(game.job(TEXTS[4])), worker.play(game.job(TEXTS[4], complete=True))
    assert (pictures(again) == pictures(straight)).all()
    assert (again[0].type, again[0].seq, straight[0].type) == ("shots", None, "state")
    assert again[0].fields["shots"] == {"3": game.shots[3], "4": game.shots[4]}
    (result,) = of_type(again, "turn_result")
    assert list(TurnResult.from_message(result).shots) == [3, 4, 5]
    shots, end = worker.play(game.job(TEXTS[4], complete=True, kind="predict"))
    assert shots.fields == again[0].fields and end.type == "part", "or they are all that the server wants"


def test_an_export_of_a_branch_has_each_turn_by_its_own_seed(worker: WorkerClient, tmp_path: Path) -> None:
    game = Game()
    first = game.turn(worker, TEXTS[0])
    game.seed = 99
    hashes = [hashlib.sha256(pictures(each).tobytes()).hexdigest() for each in (first, game.turn(worker, TEXTS[1]))]
    ends = [worker.play(job)[-1].type for job in game.export(str(tmp_path / "out"), [7, 99])]
    assert ends == ["part", "finished"]
    exported = json.loads((tmp_path / "out" / "game.json").read_text(encoding="utf-8"))
    assert [turn["frames_sha256"] for turn in exported["turns"]] == hashes


def test_turns_of_two_noise_versions_are_replayed_and_exported_by_each(worker: WorkerClient, tmp_path: Path) -> None:
    game, played = Game(), list[bytes]()
    for text, version in zip(TEXTS[:2], (1, 2), strict=True):
        job = game.job(text, noise_version=version)
        said, again = worker.play(job), worker.play(job)
        assert (pictures(again) == pictures(said)).all()
        assert (pictures(worker.play(game.job(text, noise_version=3 - version))) != pictures(said)).any()
        game.keep(text, said)
        played.append(pictures(said).tobytes())
    for job in game.export(str(tmp_path / "out"), versions=(1, 2)):
        worker.play(job)
    turns = json.loads((tmp_path / "out" / "game.json").read_text(encoding="utf-8"))["turns"]
    assert [turn["frames_sha256"] for turn in turns] == [hashlib.sha256(each).hexdigest() for each in played]
    assert [turn["noise_version"] for turn in turns] == [1, 2]


def test_a_job_that_cannot_be_played_is_answered(worker: WorkerClient) -> None:
    game = Game()
    game.turn(worker, TEXTS[0])
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"seed": "seven"}, "config", "job j: seed: wrong type of value"),
        ({"history": [["Mia waves.", 1, 0, 0, 0]]}, "config", "history[0]: not a table"),
        ({"shots": {"1": b"short"}}, "session", "a shot has the wrong size; found 5 bytes"),
        ({"omitted_turns": 3}, "session", "turns were omitted"),
        ({"history": []}, "session", "not for the next turn"),
        ({"instruction": "word " * 3000}, "instruction", "does not fit the model's window"),
    ]
    for fields, code, text in wrong:
        *_, end = worker.play(game.job(TEXTS[1], **fields))
        assert (end.type, end.session, end.turn, end.parent) == ("failed", "s", 2, "j")
        assert end.fields["code"] == code and text in end.fields["text"]
    assert worker.play(game.job(TEXTS[1], a_field_of_a_later_version=1))[-1].type == "finished"


def test_an_unexpected_error_ends_the_job_only(bundle: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    denoiser = fakes.FakeDenoiser(fail_at=2)
    with running(Pipeline.open(bundle, fakes.fake_engines(denoiser=denoiser), "exact")) as worker:
        *_, failed = worker.play(Game().job(TEXTS[0]))
        assert failed.fields == {
            "code": "internal",
            "text": "the worker failed",
            "do": "try again; worker.log has the reason",
            "answer": [],
        }
        denoiser.fail_at = None
        assert worker.play(Game().job(TEXTS[0]))[-1].type == "finished"
    assert "MemoryError: no memory for this step" in caplog.text, "the log has it, the client does not"


def test_a_turn_with_unusable_output_ends_with_what_helps_and_the_next_one_plays(bundle: Bundle) -> None:
    engines = plant(replace(fakes.fake_engines(), precision=dict.fromkeys(PLAY_ROLES, "fp16")), FRAME, index=12)
    with running(Pipeline.open(bundle, engines)) as worker:
        *sent, failed = worker.play(Game(codec="mp4").job(TEXTS[0]))
        assert failed.fields["code"] == "unusable_output" and not of_type(sent, "clip")
        assert "(fp16): " in failed.fields["text"] and "--precision bf16 or fp32" in failed.fields["do"]
        engines.vae.index = 17  # after the last
        assert worker.play(Game().job(TEXTS[0]))[-1].type == "finished"


def test_a_lost_device_ends_the_worker_and_leaves_the_job_to_the_next_one(bundle: Bundle) -> None:
    denoiser = fakes.FakeDenoiser(fail_at=2, error=DeviceLostError("this process has lost the GPU"))
    with zmq.Context() as context, context.socket(zmq.DEALER) as ours, context.socket(zmq.DEALER) as theirs:
        ours.bind("inproc://worker")
        theirs.connect("inproc://worker")
        WorkerClient(ours).send(Game().job(TEXTS[0]))
        with pytest.raises(DeviceLostError, match="lost the GPU"):
            Worker(theirs, Pipeline.open(bundle, fakes.fake_engines(denoiser=denoiser), "exact")).run()
        said = []
        while ours.poll(0):
            said.append(decode(ours.recv_multipart(), SERVER_LIMITS, check=False).type)
        assert said == ["state", "progress", "progress"]


def test_a_worker_that_cannot_open_its_bundle_says_so_in_one_line(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_main, "_exit_with_parent", lambda: None)
    monkeypatch.setattr(worker_main.signal, "signal", lambda *ignored: None)
    monkeypatch.setattr(worker_main, "LINGER_MS", 0)
    with caplog.at_level(logging.ERROR):
        command = ["--server", "tcp://127.0.0.1:1", "--bundle", str(bundle.folder), "--plan", "exakt"]
        assert worker_main.main(command) == 2
    assert "has no plan 'exakt'" in caplog.text and caplog.text.count("\n") == 1


HEIGHT, WIDTH = 96, 144


def frame(shift: int = 0) -> Frame:
    """A smooth sky, a flat red square and a sharp blue bar: what a cartoon is made of."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    picture = np.stack([100 + rows / 2, 140 + columns / 3, 230 - rows / 2], -1).astype(np.uint8)
    picture[20:50, 30 + shift : 70 + shift] = (250, 40, 30)
    picture[70:74] = (20, 30, 200)
    return picture


def psnr_db(one: Frame, other: Frame) -> float:
    return float(10 * np.log10(255**2 / np.mean((one.astype(float) - other.astype(float)) ** 2)))


def decoded(jpeg: bytes) -> Frame:
    with Image.open(io.BytesIO(jpeg)) as picture:
        assert (picture.format, picture.mode) == ("JPEG", "RGB")
        return np.asarray(picture)


def test_a_higher_quality_is_nearer_and_takes_more_bytes() -> None:
    jpegs = [JpegEncoder(HEIGHT, WIDTH, quality).encode(frame()) for quality in (1, 50, 90, 100)]
    assert sorted(map(len, jpegs)) == list(map(len, jpegs))
    nearness = [psnr_db(decoded(jpeg), frame()) for jpeg in jpegs]
    assert sorted(nearness) == nearness
    assert all(found > least for found, least in zip(nearness, (26, 32, 38, 42), strict=True))
    encoder = JpegEncoder(15, 23, 90)
    pictures = [np.full((15, 23, 3), grey, np.uint8) for grey in (90, 200)]
    for picture in pictures:  # of any size, and each is a file of its own
        assert np.abs(decoded(encoder.encode(picture)).astype(int) - picture).max() <= 3
