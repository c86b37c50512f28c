"""A short soak: every kind of fault once, and every finished turn's frames are those of an undisturbed game."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.soak.run import main
from benchmarks.soak.schedule import ENDING, LASTING, SCRIPTS, faults, games
from benchmarks.soak.watch import growth
from project import ROOT

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


def test_a_soak_that_is_stopped_keeps_what_was_played_and_says_that_it_is_incomplete(tmp_path: Path) -> None:
    fakes.write_bundle(tmp_path / "tiny")
    command = [sys.executable, "benchmarks/soak/run.py", "--bundle", str(tmp_path / "tiny"), "--results", str(tmp_path)]
    command += ["--turns", "100000", "--sessions", "2", "--faults", "50000", "--kind", "garbage"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as soak:
        assert soak.stdout is not None
        assert "garbage" in soak.stdout.readline(), "a first fault, so a first turn"
        soak.send_signal(signal.SIGINT)
        said = soak.stdout.read()
    (path,) = tmp_path.glob("*-tiny-soak.json")
    record = json.loads(path.read_text())
    assert soak.returncode == 130, said
    assert record["incomplete"] and 0 < record["turns"] < 100000
    assert (record["turns_compared"], record["wrong_bytes"]) == (record["turns"], 0)


def test_the_comparison_plays_each_game_once_however_many_turns_are_played() -> None:
    scripts = [game.script for player in range(8) for game in games(player, 1250)]
    assert len(scripts) == 256 and len(set(scripts)) == SCRIPTS
    assert len({games(player, 1250)[0].script for player in range(8)}) == 8, "what begins together differs"


def test_growth_is_that_of_the_longest_life_after_its_first_500_turns() -> None:
    def sample(turns: int, pid: int, mib: float) -> dict[str, object]:
        return {"turns": turns, "server": {"pid": pid, "resident_mib": mib}}

    short = [sample(turns, 1, 50 + turns) for turns in range(0, 900, 100)]
    long = [sample(turns, 2, 50 + min(turns - 900, 500) / 10 + turns / 1000) for turns in range(900, 3000, 100)]
    last = [sample(3000, 3, 40)]
    assert growth([*short, *long, *last], "server") == 1.0
    assert growth(short, "server") is None, "fewer turns than say anything"


def test_a_seed_repeats_the_schedule() -> None:
    assert faults(5, 100, 2000, 8) == faults(5, 100, 2000, 8) != faults(6, 100, 2000, 8)
