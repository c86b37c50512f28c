"""A short soak: every kind of fault once, and every finished turn's frames are those of an undisturbed game."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.soak.run import main
from benchmarks.soak.schedule import ENDING, LASTING
from benchmarks.soak.verdicts import verdicts

import fakes
from animegamer_rt.bundle.writer import write_manifest


def test_no_turn_is_lost_and_no_byte_changes_through_every_kind_of_fault(tmp_path: Path) -> None:
    tiny = fakes.write_bundle(tmp_path / "tiny")
    large_shots = replace(tiny.manifest, geometry=replace(tiny.manifest.geometry, shot_width=1920))
    bundle = write_manifest(tmp_path / "tiny", large_shots).folder
    kinds = len(ENDING + LASTING)
    command = f"--bundle {bundle} --turns 78 --sessions 3 --workers 2 --faults {kinds} --seed 5 --results {tmp_path}"
    code = main([*command.split(), "--longest-s", "0.5", "--game-turns", "8", "--quota-mib", "12"])
    (path,) = tmp_path.glob("*-tiny-soak.json")
    record = json.loads(path.read_text())
    assert code == 0, {name: value for name, value in record.items() if name != "samples"}
    assert (record["turns"], record["turns_lost"], record["wrong_bytes"]) == (78, 0, 0)
    assert set(record["faults_by_kind"]) == {*ENDING, *LASTING}
    assert record["server_starts"] == 4, "killed twice; the damaged bundle was refused"
    assert record["store_file_mib_max"] <= record["quota_mib"] and record["sessions_emptied_by_quota"] > 0
    samples = record["samples"]
    assert len(samples["seconds"]) == len(samples["server"]["resident_mib"]) == len(samples["worker"]["process"]) > 0
    assert samples["worker"]["process"][-1] > 0, "workers were killed and replaced"


def record(**changed: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("turns_lost", "wrong_bytes", "replays_changed", "left_behind"), 0)
    quiet, all_turns = {"turns": 2000, "p50": 0.4, "p95": 0.5}, {"turns": 10_000, "p50": 0.5, "p95": 1.0}
    sizes = {"store_file_mib_max": 8.0, "quota_mib": 8.0, "log_mib": 0.3, "mib_per_1000_turns": -0.1}
    turns = {"turn_seconds": {"all": all_turns, "quiet": quiet}}
    grown = {f"{one}_mib_per_1000_turns": None for one in ("worker", "gateway")}
    return nothing | {"failures": []} | sizes | turns | grown | changed


@pytest.mark.parametrize(
    "missed",
    [
        {"turns_lost": 1},
        {"failures": ["poison: never refused"]},
        {"store_file_mib_max": 8.1},
        {"log_mib": 51.0},
        {"mib_per_1000_turns": 1.1},
        {"worker_mib_per_1000_turns": 1.1},
        {"gateway_mib_per_1000_turns": 1.1},
        {"turn_seconds": {"all": {"p95": 1.1}, "quiet": {"turns": 500, "p95": 0.5}}},
    ],
    ids=str,
)
def test_each_goal_that_a_soak_misses_is_one_line_of_its_verdict(missed: dict[str, Any]) -> None:
    assert all(verdict.met for verdict in verdicts(record()))
    said = [str(verdict) for verdict in verdicts(record(**missed))]
    assert sum(line.startswith("MISSED") for line in said) == 1 and len(said) == 11


def test_a_soak_too_short_to_tell_is_not_judged_by_its_waits() -> None:
    short = record(turn_seconds={"all": {"p95": 9.0}, "quiet": {"turns": 499, "p95": 0.5}})
    assert "too short to tell" in str(list(verdicts(short))[-1]) and all(verdict.met for verdict in verdicts(short))
