"""The dry run of the GPU benchmark: every job's code runs on the CPU, the kernels' references in place of kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.jobs import STAGES
from benchmarks.gpu.record import turn_records
from project import ROOT

from animegamer_kernels import Library
from animegamer_kernels.library import PATH_VARIABLE


def test_dry_run_walks_through_every_job(library: Library, tmp_path: Path) -> None:
    # In its own process: the peers' libraries warn on import.
    command = [sys.executable, "benchmarks/gpu/run.py", "--dry-run", "--results", str(tmp_path)]
    environment = {**os.environ, PATH_VARIABLE: str(library.path)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*-gpu.json")
    record = json.loads(path.read_text())
    assert {(job["stage"], job["ended"]) for job in record["jobs"]} == {(stage, "well") for stage in STAGES}
    assert record["not_run"] == []
    assert len(record["profile"]) == 4 and all(entry["top"] for entry in record["profile"])
    assert {turn["against_plain_bf16"]["passed"] for turn in record["turns"] if turn["plan"] != "turbo"} == {True}
    (peer,) = (turn for turn in turn_records(record) if turn["peer"])
    assert (peer["bundle"], peer["peer"], peer["network_rows"]) == ("tiny", "diffusers eager", 100)
