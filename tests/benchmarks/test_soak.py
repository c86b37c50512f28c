"""A short soak: every kind of fault once, and every finished turn's frames are those of an undisturbed game."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.soak.run import main
from benchmarks.soak.schedule import ENDING, LASTING

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
