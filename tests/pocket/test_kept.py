"""`python -m animegamer_pocket.kept`: what is counted, and by which turn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from animegamer_pocket import kept


def test_one_game_from_each_start_keeps_its_place_and_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kept, "COUNTED", (2,))
    out = tmp_path / "kept.json"
    assert kept.main(["--plan", "fast", "--games", "1", "--seeds", "3", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    for start in ("text", "picture"):
        shares = found[start]["2"]
        assert set(shares) == {"people", "place", "hour", "clothes"}
        assert shares["place"] == shares["hour"] == 1.0
    assert (found["plan"], found["seeds"], found["games"]) == ("fast", [3], 1)
    assert "| picture, 2 |" in capsys.readouterr().out
