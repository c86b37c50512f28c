"""`animegamer-rt bench compare`: which records are compared, what is found, and files that `bench` did not write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from project import ROOT

from animegamer_bench.records import read_records
from animegamer_rt.cli import main

RECORD: dict[str, Any] = {
    "plan": "exact",
    "machine": "a machine",
    "seconds_per_turn_p50": 2.0,
    "stages": {"vae": {"p50": 0.5, "p95": 0.6}},
}


def steady(seed: int, factor: float = 1.0, **changes: Any) -> dict[str, Any]:
    """A record of 10 games of 12 turns; a turn takes about 1 s, a first turn less, and the noise is 3 %."""
    random = np.random.default_rng(seed)
    games, turns = np.repeat(np.arange(1, 11), 12), np.tile(np.arange(1, 13), 10)
    seconds = factor * np.where(turns == 1, 0.8, 1.0) * random.normal(1.0, 0.03, 120)
    samples = {"game": games.tolist(), "turn": turns.tolist(), "seconds": seconds.round(5).tolist()}
    median = float(np.median(seconds))
    return {**RECORD, "n": 120, "unsteady": [], "seconds_per_turn_p50": median, "samples": samples, **changes}


def compared(tmp_path: Path, first: dict[str, Any], second: dict[str, Any]) -> int:
    for name, record in (("a", first), ("b", second)):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    return main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])


def test_a_slow_down_of_5_percent_is_found_in_steady_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(tmp_path, steady(1), steady(2, factor=1.05)) == 0
    said = capsys.readouterr().out
    assert "% slower (ratio 1.0" in said and "n = 120 turns, the middle half of them within" in said
    assert compared(tmp_path, steady(1), steady(3)) == 0
    assert "no difference found" in capsys.readouterr().out
    other = {"plan": "mine", "network_rows": 3, "precision": {"vae": "int8"}}
    first = steady(1, network_rows=98, precision={"vae": "fp16"})
    assert compared(tmp_path, first, steady(2, factor=0.5, **other)) == 0
    said = capsys.readouterr().out
    assert "plan: A exact; B mine" in said and "% faster (ratio 0." in said


def test_a_slow_down_of_5_percent_is_found_in_the_noise_of_a_real_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The games of a recorded run of suite 1 in turn: every other one, and the others 5 % slower."""
    runs = [record for record in read_records(ROOT / "benchmarks" / "results") if record.get("suite")]
    run = next(record for record in reversed(runs) if not record["unsteady"])
    games = np.asarray(run["samples"]["game"])
    halves = []
    for kept, factor in ((games % 2 == 0, 1.0), (games % 2 == 1, 1.05)):
        columns = {name: np.asarray(column)[kept] for name, column in run["samples"].items()}
        columns["seconds"] = columns["seconds"] * factor
        samples = {name: column.tolist() for name, column in columns.items()}
        halves.append({**run, "n": int(kept.sum()), "samples": samples})
    assert compared(tmp_path, *halves) == 0
    assert "% slower (ratio 1.0" in capsys.readouterr().out


def test_an_unsteady_record_gets_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(tmp_path, steady(1), steady(2, factor=1.5, unsteady=["busy"])) == 0
    said = capsys.readouterr().out
    assert "no verdict: B is unsteady" in said and "unsteady: busy" in said and "slower" not in said


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"machine": "another"}, "machine: A a machine, B another"),
        ({"suite": 2}, "suite: A 1, B 2"),
        ({"fingerprint": "other"}, "fingerprint: A a bundle's, B other"),
        ({"instruction_sets": ["avx2", "amx_int8"]}, "instruction_sets: A ['avx2'], B ['avx2', 'amx_int8']"),
        (
            {"precision": {"vae": "fp16", "denoiser": "int8"}},
            "precision: A {'denoiser': 'fp16'}, B {'denoiser': 'int8'}",
        ),
    ],
)
def test_records_of_unlike_cohorts_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], told: str
) -> None:
    first = steady(
        1, suite=1, precision={"vae": "fp16", "denoiser": "fp16"}, fingerprint="a bundle's", instruction_sets=["avx2"]
    )
    assert compared(tmp_path, first, {**first, **changes}) == 2
    assert f"the two records cannot be compared; found {told}; expected" in capsys.readouterr().err


STAGES = {name: {"p50": 1.0, "p95": 1.0} for name in ("predictor", "denoiser", "vae")}
PLAIN: dict[str, Any] = {"machine": "m", "seconds_per_turn_p50": 1.0, "stages": STAGES, "date": "2026-01-01"}


def compare(tmp_path: Path, text: str) -> int:
    (tmp_path / "a.json").write_text(text)
    return main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PLAIN)[:60],
        "[" * 100_000,
        '{"a":' * 200 + "1" + "}" * 200,
        "[]",
        "null",
        json.dumps({**PLAIN, "seconds_per_turn_p50": "1"}),
        json.dumps({**PLAIN, "seconds_per_turn_p50": [1]}),
        json.dumps({**PLAIN, "seconds_per_turn_p50": True}),
        json.dumps({**PLAIN, "stages": 3}),
        json.dumps({**PLAIN, "stages": {"vae": 3}}),
        json.dumps({**PLAIN, "stages": {"vae": {"p50": None}}}),
        json.dumps(PLAIN).replace("1.0", "NaN"),
        json.dumps(PLAIN).replace("1.0", "1e999"),
        json.dumps(PLAIN).replace("1.0", "9" * 400),
    ],
    ids=range(14),
)
def test_a_file_that_is_no_record_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert compare(tmp_path, text) == 2
    said = capsys.readouterr().err
    assert "record" in said and said.startswith("error: ") and said.count("\n") == 1


def test_bytes_that_are_no_text_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "utf-16.json").write_bytes(json.dumps(PLAIN).encode("utf-16"))
    assert main(["bench", "compare", *[str(tmp_path / "utf-16.json")] * 2]) == 2
    assert "utf-16.json: the record cannot be read; found it is not utf-8 text; pass" in capsys.readouterr().err


def test_the_machine_of_a_record_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, machine in (("a", "x\x1b[2J\u202e"), ("b", "y\x1b]0;z\x07")):
        stages = {"stage\x1b[31m": {"p50": 1.0}}
        (tmp_path / f"{name}.json").write_text(json.dumps({**PLAIN, "machine": machine, "stages": stages}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    refused = capsys.readouterr().err
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    shown = capsys.readouterr().out
    assert not set("\x1b\x07\u202e") & set(refused + shown) and "\\x1b[2J" in refused and "\\x1b[31m" in shown
