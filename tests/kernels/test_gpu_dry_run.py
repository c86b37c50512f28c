"""The dry run of the GPU benchmark: every job's code runs on the CPU, the kernels' references in place of kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.gpu import parts, run
from benchmarks.gpu.jobs import STAGES
from benchmarks.gpu.record import turn_records
from project import ROOT

from animegamer_kernels import Library
from animegamer_kernels.library import PATH_VARIABLE
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.loader import EngineSetup


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


@pytest.mark.parametrize(
    ("command", "paths"),
    [(["benchmarks/gpu/run.py", "--help"], []), (["-c", "from benchmarks.gpu import stage, turns"], run.PATHS)],
    ids=["run", "stage"],
)
def test_checkout_runs_without_being_installed(command: list[str], paths: list[str]) -> None:
    # -S: no .pth files, so of the site-packages only what others wrote is found.
    others = str(Path(np.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, others])}
    done = subprocess.run([sys.executable, "-S", *command], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_random_weights_drawn_in_pieces_are_the_same_in_every_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "DRAWN_AT_ONCE", 5000)
    size = parts.SIZES["tiny"]
    devices = [TorchDevice(dtype) for dtype in (torch.float32, torch.bfloat16)]
    made = [parts.random_networks(size, EngineSetup(device, size.geometry, []), light=True) for device in devices]
    first, second = (networks.denoiser.state_dict() for networks in made)
    assert all(torch.equal(weight, second[name].float()) for name, weight in first.items())
    rows = first["head.output.weight"]
    assert len(rows.unique(dim=0)) == len(rows), "no piece repeats another"
