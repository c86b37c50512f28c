"""`animegamer-rt bench compare`: two records side by side."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from animegamer_rt.cli import main


def test_two_records_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "plan": "exact",
        "commit": "aa",
        "seconds_per_turn_p50": 2.0,
        "stages": {"vae": {"p50": 0.5, "p95": 0.6}},
    }
    (tmp_path / "a.json").write_text(json.dumps({**record, "energy_j_per_turn": 80.0}))
    (tmp_path / "b.json").write_text(json.dumps({**record, "plan": "fast", "seconds_per_turn_p50": 1.0}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    shown = capsys.readouterr().out
    assert "0.50" in shown and "plan: A exact; B fast" in shown and "commit" not in shown
    assert "energy" not in shown, "only one of them has it"
    assert [line for line in shown.splitlines() if "vae p50" in line and line.count("0.500") == 2]
    assert shown.count("not measured") == 2
    (tmp_path / "b.json").write_text(
        json.dumps({**record, "plan": "fast", "fidelity": {"ssim": 0.9274, "psnr_db": 26.5}})
    )
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"ssim .*the reference .*0\.927", shown) and re.search(r"psnr_db .*the reference .*26\.5", shown)
    assert main(["bench", "compare", str(tmp_path / "a.json")]) == 2
    assert main(["bench", "turn", str(tmp_path / "a.json")]) == 2
    assert "only `bench compare` takes records" in capsys.readouterr().err
    (tmp_path / "b.json").write_text(json.dumps({**record, "energy_j_per_turn": 20.0}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "energy_j_per_turn" in (shown := capsys.readouterr().out) and "0.25" in shown
    for name, attention in (("a", "flash"), ("b", "int8")):
        (tmp_path / f"{name}.json").write_text(json.dumps({**record, "attention": attention}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "attention: A flash; B int8" in capsys.readouterr().out
    (tmp_path / "a.json").write_text(json.dumps(record))  # as records were before they said it
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "attention: A None; B int8" in capsys.readouterr().out
    for spoilt in (
        "[]",
        "{}",
        json.dumps({**record, "seconds_per_turn_p50": "x"}),
        json.dumps({**record, "stages": 1}),
    ):
        (tmp_path / "b.json").write_text(spoilt)
        assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
        assert "b.json: not a record of turns" in capsys.readouterr().err
