"""`animegamer-rt bench show`: records in the formats that others read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from animegamer_rt.cli import main

RECORD = {
    "date": "2026-11-20T10:00:00+00:00",
    "commit": "abc",
    "machine": "O'Brien's {PC}, 2 cores",
    "bundle": "pocket",
    "plan": "fast",
    "n": 25,
    "seconds_per_turn_p50": 0.5,
    "seconds_per_turn_p95": 0.6,
    "suite": 1,
    "unsteady": [],
    "stages": {"vae": {"p50": 0.1}},
    "precision": {"denoiser": "int8"},
    "quality_gate": {"passed": False},
}


def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str) -> str:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(RECORD))
    assert main(["bench", "show", str(path), str(path), "--format", wanted]) == 0
    return capsys.readouterr().out


def test_every_table_format_has_the_same_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(shown(tmp_path, capsys, "json"))
    assert len(rows) == 2 and rows[0]["seconds_per_turn_p50"] == 0.5 and rows[0]["precision"] == "int8"
    assert rows[0]["steady"] is True and rows[0]["gate_passed"] is False and rows[0]["fps"] is None
    table = list(csv.DictReader(io.StringIO(shown(tmp_path, capsys, "csv"))))
    assert [row["machine"] for row in table] == [RECORD["machine"]] * 2 and table[0]["fps"] == ""
    assert "| 0.5 |" in shown(tmp_path, capsys, "md")


def test_a_table_of_peers_says_whose_turns_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = {"suite": None, "n": 5, "origin": "random weights", "bundle": "full", "plan": "exact"}
    ours = {**RECORD, **about, "peer": None, "variant": "fp8", "attention": "wgmma", "precision": {"denoiser": "fp8"}}
    other = {**RECORD, **about, "peer": "diffusers eager", "precision": {"denoiser": "bf16"}}
    paths = [tmp_path / "ours.json", tmp_path / "other.json"]
    for path, record in zip(paths, (ours, other), strict=True):
        path.write_text(json.dumps(record))
    assert main(["bench", "show", *map(str, paths)]) == 0
    head, _, _, row = capsys.readouterr().out.splitlines()
    assert "| peer | origin | precision |" in head and "suite" not in head and "| diffusers eager |" in row
