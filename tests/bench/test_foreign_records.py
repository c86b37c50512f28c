"""`bench compare` of files that `bench` did not write, or that say what would steer a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.cli import main

STAGES = {name: {"p50": 1.0, "p95": 1.0} for name in ("predictor", "denoiser", "vae")}
RECORD: dict[str, Any] = {"machine": "m", "seconds_per_turn_p50": 1.0, "stages": STAGES, "date": "2026-01-01"}


def compare(tmp_path: Path, text: str) -> int:
    (tmp_path / "a.json").write_text(text)
    return main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(RECORD)[:60],
        "[" * 100_000,
        '{"a":' * 200 + "1" + "}" * 200,
        "[]",
        "null",
        json.dumps({**RECORD, "seconds_per_turn_p50": "1"}),
        json.dumps({**RECORD, "seconds_per_turn_p50": [1]}),
        json.dumps({**RECORD, "seconds_per_turn_p50": True}),
        json.dumps({**RECORD, "stages": 3}),
        json.dumps({**RECORD, "stages": {"vae": 3}}),
        json.dumps({**RECORD, "stages": {"vae": {"p50": None}}}),
        json.dumps(RECORD).replace("1.0", "NaN"),
        json.dumps(RECORD).replace("1.0", "1e999"),
        json.dumps(RECORD).replace("1.0", "9" * 400),
    ],
    ids=range(14),
)
def test_a_file_that_is_no_record_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert compare(tmp_path, text) == 2
    said = capsys.readouterr().err
    assert "record" in said and said.startswith("error: ") and said.count("\n") == 1


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "utf-16.json").write_bytes(json.dumps(RECORD).encode("utf-16"))
    assert main(["bench", "verify", str(tmp_path / "utf-16.json")]) == 2
    assert "utf-16.json: the record cannot be read; found it is no text in utf-8; give" in capsys.readouterr().err


def test_a_narrow_terminal_shows_the_whole_name_of_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert compare(tmp_path, json.dumps({**RECORD, "seconds_per_turn_max": 2.0})) == 0
    said = capsys.readouterr().out
    cells = "".join(line.split("│")[1].strip() for line in said.splitlines() if line.startswith("│"))
    assert "seconds_per_turn_p50seconds_per_turn_max" in cells and "…" not in said


def test_the_machine_of_a_record_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, machine in (("a", "x\x1b[2J\u202e"), ("b", "y\x1b]0;z\x07")):
        stages = {"stage\x1b[31m": {"p50": 1.0}}
        (tmp_path / f"{name}.json").write_text(json.dumps({**RECORD, "machine": machine, "stages": stages}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    refused = capsys.readouterr().err
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    shown = capsys.readouterr().out
    assert not set("\x1b\x07\u202e") & set(refused + shown) and "\\x1b[2J" in refused and "\\x1b[31m" in shown
