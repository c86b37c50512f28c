"""What a job answers: events that clients may be sent as they are, and all that the front needs to keep the turn."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

import fakes
from animegamer_rt.backends import simulated
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import AnimeGamerError, ConfigError, OutputError, SessionError, TurnCancelled
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire import SERVER_LIMITS, Message, decode, encode
from animegamer_rt.serving.worker.encoders import ClipEncoder
from animegamer_rt.serving.worker.game_export import render_game
from animegamer_rt.serving.worker.messages import TurnJob
from animegamer_rt.serving.worker.turn import play_turn, prepare_turn
from animegamer_rt.state.game import CharacterState, GameState

TEXTS = ["Mia waves.", "Mia runs.", "Tobo runs.", "Tobo flies.", "Mia flies."]
STRENGTHS = ("motion_level", "social", "entertainment", "stamina")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


@pytest.fixture(scope="module")
def pipeline(bundle: Bundle) -> Pipeline:
    return Pipeline.open(bundle, simulated.load(bundle, EngineConfig("simulated:0")))


class Front:
    """Keeps a game as the server does, and plays it one job at a time."""

    def __init__(self, pipeline: Pipeline, seed: int = 7, window: int = 2, **wish: object) -> None:
        self.pipeline, self.seed, self.window, self.wish = pipeline, seed, window, wish
        self.log: list[list[Any]] = []
        self.shots: dict[int, bytes] = {}
        self.character = asdict(CharacterState())

    def job(self, text: str, *, complete: bool = False, **changes: object) -> Message:
        first = 0 if complete else max(0, len(self.log) - self.window)
        shots = {} if complete else {turn: shot for turn, shot in self.shots.items() if turn > first}
        wanted = {"kind": "turn", "instruction": text, "seed": self.seed, "history_turns": self.window, "first": first}
        wanted |= {"log": self.log[first:], "shots": list(shots), "character": self.character, **self.wish, **changes}
        return Message("job", wanted, id="j1", session="s1", turn=len(self.log) + 1, buffers=tuple(shots.values()))

    def play(self, text: str) -> list[Message]:
        events = answers(self.pipeline, self.job(text))
        settled = settled_of(events)
        self.log.append([text, *(settled.fields[name] for name in STRENGTHS)])
        self.shots |= dict(zip(settled.fields["shots"], map(bytes, settled.buffers), strict=True))
        self.character = settled.fields["character"]
        return events


def answers(pipeline: Pipeline, job: Message, alive: Callable[[], None] = lambda: None) -> list[Message]:
    return list(play_turn(pipeline, prepare_turn(pipeline, job, alive)))


def of_type(events: list[Message], kind: str) -> list[Message]:
    return [event for event in events if event.type == kind]


def settled_of(events: list[Message]) -> Message:
    (settled,) = of_type(events, "settled")
    return settled


def pictures(events: list[Message]) -> np.ndarray:
    frames = []
    for event in of_type(events, "frame"):
        size = (event.fields["height"], event.fields["width"], event.fields["stride"] // event.fields["width"])
        frames.append(np.frombuffer(event.buffers[0], np.uint8).reshape(size))
    return np.stack(frames)


WISHES: list[dict[str, object]] = [
    {"codec": "raw", "pixel_format": "rgba32"},
    {"codec": "raw", "pixel_format": "bgra32", "flip": True, "clip": True},
    {"codec": "jpeg", "pixel_format": "bgra32", "jpeg_quality": 95},
    {"codec": "jpeg", "clip": True},
    {"codec": "mp4"},
]


@pytest.mark.parametrize("wish", WISHES)
def test_every_event_is_one_that_a_client_may_be_sent(pipeline: Pipeline, wish: dict[str, object]) -> None:
    *said, end = Front(pipeline, **wish).play(TEXTS[0])
    events = [event for event in said if event.type != "settled"]
    for event in events:
        decoded = decode([bytes(frame) for frame in encode(event)], SERVER_LIMITS)
        assert decoded.fields == event.fields
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {(event.session, event.turn, event.parent) for event in [*said, end]} == {("s1", 1, "j1")}
    assert (end.type, end.seq, settled_of(said).seq) == ("finished", None, None)


@pytest.mark.parametrize("wish", WISHES)
def test_the_same_job_gives_the_same_messages(pipeline: Pipeline, wish: dict[str, object]) -> None:
    front = Front(pipeline, **wish)
    front.play(TEXTS[0])
    one, other = answers(pipeline, front.job(TEXTS[1])), answers(pipeline, front.job(TEXTS[1]))
    assert [(event.type, event.seq, event.buffers) for event in one] == [
        (event.type, event.seq, event.buffers) for event in other
    ]


def test_the_state_comes_first_then_steps_then_frames_then_the_clip(pipeline: Pipeline) -> None:
    events = Front(pipeline, clip=True).play(TEXTS[0])
    kinds = [event.type for event in events]
    clips = kinds.count("clip")
    assert kinds == ["state", *["progress"] * 3, "settled", *["frame"] * 17, *["clip"] * clips, "finished"]
    assert [event.fields["last"] for event in of_type(events, "clip")] == [False] * (clips - 1) + [True]
    assert [event.fields["index"] for event in of_type(events, "frame")] == list(range(17))


def test_jpeg_and_clip_show_the_raw_frames(pipeline: Pipeline) -> None:
    raw = pictures(Front(pipeline, pixel_format="rgb24", flip=True).play(TEXTS[0])).astype(int)
    events = Front(pipeline, pixel_format="bgra32", flip=True, codec="jpeg", jpeg_quality=100, clip=True).play(TEXTS[0])
    for event, expected in zip(of_type(events, "frame"), raw, strict=True):
        with Image.open(io.BytesIO(event.buffers[0])) as picture:
            assert np.abs(np.asarray(picture).astype(int) - expected).mean() < 3
    content = b"".join(event.buffers[0] for event in of_type(events, "clip"))
    with av.open(io.BytesIO(content)) as container:
        shown = np.stack([picture.to_ndarray(format="rgb24") for picture in container.decode(video=0)])
    assert np.abs(shown.astype(int) - raw).mean() < 12


def test_raw_frames_are_not_copied(pipeline: Pipeline) -> None:
    event = of_type(Front(pipeline).play(TEXTS[0]), "frame")[0]
    buffer = event.buffers[0]
    assert isinstance(buffer, memoryview) and buffer.contiguous and len(buffer) == 16 * 24 * 3
    assert isinstance(buffer.obj, np.ndarray) and buffer.obj.base is not None, "a frame of its own, not of its chunk"


def test_settled_says_what_a_kept_turn_needs_and_finished_what_it_took(pipeline: Pipeline) -> None:
    front = Front(pipeline)
    for turn, text in enumerate(TEXTS, 1):
        events = front.play(text)
        settled, end = settled_of(events), events[-1]
        assert settled.fields["shots"] == [turn]
        assert [len(shot) for shot in settled.buffers] == [2 * 226 * 8]
        assert set(end.fields["seconds"]) == {"predictor", "denoiser", "vae", "total"}
        assert end.fields["resident_mib"] > 10
    character = CharacterState()
    for row in front.log:
        character = character.after(GameState(*row[1:]))
    assert front.character == asdict(character)


def test_missing_shots_are_predicted_again_and_handed_back(pipeline: Pipeline) -> None:
    front = Front(pipeline)
    for text in TEXTS[:4]:
        front.play(text)
    before, alive = dict(front.shots), []
    straight = answers(pipeline, front.job(TEXTS[4]))
    again = answers(pipeline, front.job(TEXTS[4], complete=True), lambda: alive.append(1))
    assert (pictures(again) == pictures(straight)).all()
    assert len(alive) == 4
    assert settled_of(again).fields["shots"] == [3, 4, 5]
    assert settled_of(again).buffers == (before[3], before[4], settled_of(straight).buffers[0])
    assert (again[0].type, again[0].fields["shots"], again[0].seq) == ("shots", [3, 4], None)
    assert again[0].buffers == (before[3], before[4]) and straight[0].type == "state"


def test_a_job_can_be_stopped_while_shots_are_predicted_again(pipeline: Pipeline) -> None:
    front, alive = Front(pipeline), []
    for text in TEXTS[:4]:
        front.play(text)

    def stop() -> None:
        alive.append(1)
        if len(alive) == 2:
            raise TurnCancelled("enough")

    with pytest.raises(TurnCancelled):
        answers(pipeline, front.job(TEXTS[4], complete=True), stop)
    assert len(alive) == 2


@pytest.mark.parametrize("wish", [{"codec": "mp4"}, {"codec": "jpeg", "clip": True}])
@pytest.mark.parametrize("at", ["state", "clip"])
def test_a_turn_that_is_given_up_ends_its_clips_encoder(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, wish: dict[str, object], at: str
) -> None:
    ended = []

    class Encoder(ClipEncoder):
        def close(self) -> None:
            super().close()
            ended.append(self)

    monkeypatch.setattr("animegamer_rt.serving.worker.turn.ClipEncoder", Encoder)
    messages = play_turn(pipeline, prepare_turn(pipeline, Front(pipeline, **wish).job(TEXTS[0]), lambda: None))
    assert any(message.type == at for message in messages)
    messages.close()
    assert ended


def test_a_window_of_zero_has_no_shots_to_keep(pipeline: Pipeline) -> None:
    front = Front(pipeline, window=0)
    front.play(TEXTS[0])
    settled = settled_of(front.play(TEXTS[1]))
    assert (settled.fields["shots"], settled.buffers) == ([], ())


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"codec": "gif"}, ConfigError, "codec: not a known value"),
        ({"pixel_format": "rgb"}, ConfigError, "did you mean 'rgb24'"),
        ({"jpeg_quality": 0}, ConfigError, "jpeg_quality: out of range"),
        ({"seed": "seven"}, ConfigError, "job j1: seed: wrong kind of value"),
        ({"log": [["Mia waves."]]}, ConfigError, "expected a list of 5"),
        ({"log": [["Mia waves.", 9, 0, 0, 0]]}, ConfigError, "motion_level: a strength is out of range"),
        ({"character": {}}, None, ""),
        ({"seed": -1}, SessionError, "seed is negative"),
        ({"first": 3}, SessionError, "turns were left out"),
        ({"log": []}, SessionError, "not of the game's next turn"),
        ({"shots": [1, 2]}, SessionError, "shots do not fit its numbers"),
        ({"a_field_of_a_later_version": 1}, None, ""),
    ],
)
def test_a_job_that_does_not_hold_together_is_refused(
    pipeline: Pipeline, changes: dict[str, object], kind: type[AnimeGamerError] | None, said: str
) -> None:
    front = Front(pipeline)
    front.play(TEXTS[0])
    job = front.job(TEXTS[1], **changes)
    if kind is None:
        assert answers(pipeline, job)[-1].type == "finished"
        return
    with pytest.raises(kind, match=said):
        answers(pipeline, job)


def test_a_job_without_one_of_its_fields_is_refused(pipeline: Pipeline) -> None:
    job = Front(pipeline).job(TEXTS[0])
    for name in ("instruction", "seed", "history_turns", "character"):
        assert name in {field.name for field in fields(TurnJob)}
        short = Message("job", {key: value for key, value in job.fields.items() if key != name}, id="j1", turn=1)
        with pytest.raises(ConfigError, match=f"the key '{name}' is missing"):
            answers(pipeline, short)


def test_a_shot_of_another_bundle_is_refused(pipeline: Pipeline) -> None:
    front = Front(pipeline)
    front.play(TEXTS[0])
    front.shots[1] = front.shots[1][:-2]
    with pytest.raises(SessionError, match="a shot is not this bundle's; found 3614 bytes; expected 3616 bytes"):
        answers(pipeline, front.job(TEXTS[1]))


def export_job(front: Front, folder: Path, **changes: object) -> Message:
    wanted = {"kind": "export", "folder": str(folder), "seed": front.seed, "history_turns": front.window}
    wanted |= {"log": front.log, "seeds": [front.seed] * len(front.log)}
    return Message("job", {**wanted, **changes}, id="j2", session="s1")


def exported(pipeline: Pipeline, job: Message) -> tuple[list[Message], dict[str, Any]]:
    events = list(render_game(pipeline, job))
    return events, json.loads((Path(job.fields["folder"]) / "game.json").read_text(encoding="utf-8"))


def test_an_export_is_the_game_as_it_was_played(pipeline: Pipeline, tmp_path: Path) -> None:
    front = Front(pipeline, pixel_format="rgb24")
    hashes = [hashlib.sha256(pictures(front.play(text)).tobytes()).hexdigest() for text in TEXTS[:3]]
    (*progress, end), game = exported(pipeline, export_job(front, tmp_path / "out"))
    assert [turn["frames_sha256"] for turn in game["turns"]] == hashes
    assert [turn["instruction"] for turn in game["turns"]] == TEXTS[:3]
    assert [[turn["state"][name] for name in STRENGTHS] for turn in game["turns"]] == [row[1:] for row in front.log]
    assert (end.type, sorted(end.fields["files"])) == (
        "finished",
        sorted(file.name for file in (tmp_path / "out").iterdir()),
    )
    steps = [event.fields["step"] for event in progress]
    assert steps == sorted(steps) and set(steps) == {0, 1, 2, 3}
    assert {(event.type, event.fields["steps"]) for event in progress} == {("progress", 3)}
    assert progress[-1].fields["seconds_left"] == 0


def test_an_export_of_a_branch_has_each_turn_by_its_own_seed(pipeline: Pipeline, tmp_path: Path) -> None:
    front = Front(pipeline, seed=7, pixel_format="rgb24")
    first = hashlib.sha256(pictures(front.play(TEXTS[0])).tobytes()).hexdigest()
    front.seed = 99
    second = hashlib.sha256(pictures(front.play(TEXTS[1])).tobytes()).hexdigest()
    _, game = exported(pipeline, export_job(front, tmp_path / "out", seeds=[7, 99]))
    assert [turn["frames_sha256"] for turn in game["turns"]] == [first, second]
    with pytest.raises(SessionError, match="not one seed a turn; found 1; expected 2"):
        exported(pipeline, export_job(front, tmp_path / "out", seeds=[7]))


def test_an_empty_game_is_exported_as_one(pipeline: Pipeline, tmp_path: Path) -> None:
    (end,), game = exported(pipeline, export_job(Front(pipeline), tmp_path / "out"))
    assert (end.fields, game["turns"]) == ({"files": ["game.json"], "turns": 0}, [])


def test_an_export_to_where_nothing_can_be_written_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written"):
        list(render_game(pipeline, export_job(Front(pipeline), tmp_path / "file" / "out")))
