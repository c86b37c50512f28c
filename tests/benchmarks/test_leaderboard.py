"""The page of many machines' records: which it shows together, and which it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.leaderboard import build

from animegamer_rt.bench.figures import figures_of
from animegamer_rt.bench.record_form import RECORD, Form
from animegamer_rt.bench.records import seal
from animegamer_rt.bench.suite import load_suite
from animegamer_rt.bench.verify import problems

N = 192


def empty(form: Form) -> Any:
    """The least value of this form."""
    if type(None) in form.types:
        return None
    if dict in form.types:
        return {name: empty(one) for name, one in form.fields.items()}
    return form.types[0]()


def suite_record(machine: str, seconds: float, **changes: Any) -> dict[str, Any]:
    """A sound record of suite 1."""
    record: dict[str, Any] = empty(RECORD)
    each = np.full(N, seconds) + (np.arange(N) % 3 - 1) * 1e-3
    starts = np.concatenate([[0.0], np.cumsum(each)[:-1]])
    columns = {name: np.zeros(N, int) for name in record["samples"]}
    columns |= {"game": np.arange(N) // 12 + 1, "at": starts, "seconds": each, "vae": each / 2}
    record["samples"] = {name: column.tolist() for name, column in columns.items()}
    record |= figures_of(record["samples"], 17, 2.125)
    record |= {"format": 2, "date": "2026-11-20T10:00:00+00:00", "commit": "abc", "machine": machine, "n": N}
    record |= {"bundle": "pocket", "fingerprint": "f", "plan": "fast", "suite": 1, "suite_sha256": load_suite(1).sha256}
    record |= {"shape": [17, 96, 144], "playback_seconds": 2.125, "sustained_seconds_per_turn": seconds}
    record |= {"complete": True, "precision": {"denoiser": "int8"}}
    record["quality_gate"]["passed"] = True
    return seal({**record, **changes})


def written(folder: Path, *records: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, record in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(record))
    return folder


def test_cohorts_stand_apart_and_shaky_records_below(tmp_path: Path) -> None:
    slow, fast = suite_record("A <b>slow</b> one", 5.0), suite_record("fast", 3.5)
    shaky, other = suite_record("shaky", 3.2, unsteady=["busy"]), suite_record("fast", 9.0, plan="exact")
    assert list(problems(fast)) == []
    folder = written(tmp_path / "packs", slow, shaky, fast, other)
    assert build.main([str(folder), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    exact, _, faster = page.partition("plan fast")
    assert "9.00" in exact and "9.00" not in faster
    places = [faster.index(text) for text in (">fast<", "A &lt;b&gt;slow", "shaky", "unsteady: busy")]
    assert places == sorted(places) and "<script" not in page and "http" not in page


@pytest.mark.parametrize("changes", [{"seconds_per_turn_p50": 0.1}, {"suite_sha256": "other"}])
def test_an_unsound_record_ends_it_without_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    folder = written(tmp_path / "packs", suite_record("fast", 4.0, **changes))
    assert build.main([str(folder), "--out", str(tmp_path / "page")]) == 1
    assert "0.json: " in capsys.readouterr().err and not (tmp_path / "page").exists()


def test_the_cost_follows_from_the_price_list() -> None:
    prices = {"electricity_per_kwh": 0.5, "machines": [{"match": "fast", "per_hour": 2.0, "watts": 100}]}
    guessed = build.cost(suite_record("fast one", 3.6), prices)
    measured = build.cost(suite_record("fast one", 3.6, energy_j_per_turn=3600.0), prices)
    assert guessed is not None and measured is not None and build.cost(suite_record("another", 4.0), prices) is None
    assert guessed.money == pytest.approx(2.0 + 0.05) and not guessed.energy_measured
    assert measured.money == pytest.approx(2.0 + 0.5) and measured.energy_measured
