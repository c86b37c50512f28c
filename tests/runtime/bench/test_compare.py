"""`animegamer-rt bench compare`: two records side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.cli import main

RECORD = {"plan": "exact", "seconds_per_turn_p50": 2.0, "stages": {"vae": {"p50": 0.5, "p95": 0.6}}}


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ({"energy_j_per_turn": 80.0}, {"energy_j_per_turn": 20.0}, ["energy_j_per_turn", "0.25"]),
        ({}, {"plan": "fast", "fidelity": {"ssim": 0.9274}}, ["plan: A exact; B fast", "the reference", "0.927"]),
    ],
)
def test_two_records_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], first: dict[str, Any], second: dict[str, Any], shown: list[str]
) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path, changes in zip(paths, (first, second), strict=True):
        path.write_text(json.dumps({**RECORD, **changes}))
    assert main(["bench", "compare", *map(str, paths)]) == 0
    said = capsys.readouterr().out
    assert [words for words in shown if words not in said] == []
    assert ("energy" in said) == ("energy_j_per_turn" in first), "where only one of them has it, it is not compared"


def test_json_has_figures_with_their_ratio_and_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RECORD))
    (tmp_path / "b.json").write_text(json.dumps({**RECORD, "plan": "fast", "seconds_per_turn_p50": 1.0}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["figures"]["seconds_per_turn_p50"] == {"a": 2.0, "b": 1.0, "b_over_a": 0.5}
    assert said["differences"] == {"plan": {"a": "exact", "b": "fast"}} and said["comparable"] is False


@pytest.mark.parametrize("spoilt", ["{}", json.dumps({**RECORD, "seconds_per_turn_p50": "x"})])
def test_file_that_is_no_record_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], spoilt: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RECORD))
    (tmp_path / "b.json").write_text(spoilt)
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert "b.json: not a record of turns" in capsys.readouterr().err
