"""What server and worker say, field by field: a renamed Python field must not change it."""

from __future__ import annotations

from typing import Any

import pytest

from animegamer_rt.errors import AnimeGamerError, ConfigError, OutputError
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.worker_messages import (
    ExportFinished,
    ExportJob,
    FrameOptions,
    JobFailed,
    PredictedShots,
    TurnFinished,
    TurnJob,
    TurnResult,
    WorkerReady,
)
from animegamer_rt.state.game import CharacterState, GameState

FRAMES = {"pixel_format": "bgra32", "flip": True, "codec": "jpeg", "jpeg_quality": 80, "clip": True}
ROW = ("Mia waves.", 1, -2, 3, 4)
MESSAGES: list[tuple[Any, dict[str, Any]]] = [
    (
        TurnJob("Mia runs.", 7, 4, CharacterState(40, 50, 60), 2, (ROW,), (3,), FrameOptions(*FRAMES.values())),
        {
            "kind": "turn",
            "instruction": "Mia runs.",
            "seed": 7,
            "history_turns": 4,
            "first": 2,
            "log": [list(ROW)],
            "shots": [3],
            "character": {"stamina": 40, "social": 50, "entertainment": 60},
            **FRAMES,
        },
    ),
    (
        ExportJob("out", 7, 4, (ROW,), (9,)),
        {"kind": "export", "folder": "out", "seed": 7, "history_turns": 4, "log": (ROW,), "seeds": (9,)},
    ),
    (WorkerReady("s", 0.5, None), {"secret": "s", "warmup_s": 0.5, "resident_mib": None}),
    (PredictedShots({3: b"3"}), {"shots": [3]}),
    (
        TurnResult(GameState(1, -2, 3, 4), CharacterState(40, 50, 60), {3: b"3"}),
        {
            "motion_level": 1,
            "social": -2,
            "entertainment": 3,
            "stamina": 4,
            "character": {"stamina": 40, "social": 50, "entertainment": 60},
            "shots": [3],
        },
    ),
    (TurnFinished({"total": 2.0}, 5.0), {"seconds": {"total": 2.0}, "resident_mib": 5.0}),
    (ExportFinished(("game.json",)), {"files": ["game.json"]}),
    (JobFailed("config", "no", "yes"), {"code": "config", "text": "no", "do": "yes"}),
]


@pytest.mark.parametrize(("said", "fields"), MESSAGES, ids=lambda value: type(value).__name__)
def test_fields_are_these_and_come_back(said: Any, fields: dict[str, Any]) -> None:
    assert said.to_fields() == fields
    buffers = tuple(said.buffers()) if hasattr(said, "buffers") else ()
    again = type(said).from_message(Message("any", {**fields, "of_a_later_version": 1}, id="j", buffers=buffers))
    assert again == said


def test_a_job_without_one_of_its_fields_is_refused() -> None:
    fields = dict(MESSAGES[0][1])
    for name in ("instruction", "seed", "history_turns", "character"):
        short = {key: value for key, value in fields.items() if key != name}
        with pytest.raises(ConfigError, match=f"job j: the key '{name}' is missing"):
            TurnJob.from_message(Message("job", short, id="j"))


def test_a_client_is_told_what_is_wrong_and_no_path(tmp_path: Any) -> None:
    error: AnimeGamerError = OutputError("cannot be written", where=tmp_path / "state", found="no space left on device")
    assert client_text(error) == "cannot be written; found no space left on device"
    error = ConfigError("not a table", where=f"{tmp_path}/manifest.json: sizes of vae", found=r"C:\games\pocket\x.onnx")
    assert client_text(error) == "manifest.json: sizes of vae: not a table; found x.onnx"
    for text in ("tcp://127.0.0.1:5570", "3/4 of it, and/or more", "1.2 MiB/s", "ask http://example.org/a/b"):
        assert without_folders(text) == text
