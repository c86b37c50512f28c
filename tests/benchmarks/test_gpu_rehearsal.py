"""What only a GPU runs, rehearsed on one made of the CPU: the code of checks, turns and rates ends and its checks hold.

bf16 and FP8 take the same time on every processor here: tests/fakes/half_products.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import checks
from project import ROOT

from animegamer_rt.bundle.denoise_plan import DenoisePlan

STEPS = (
    (999, "conditional"),
    (679, "pair"),
    (439, "pair"),
    (319, "reuse"),
    (119, "conditional"),
    (39, "conditional"),
)
"""A short plan with steps of every kind, two alike one after the other: (timestep, branch)."""
JOBS = ("checks bf16", "turns full-bf16", "turns full-fp8", "rates products")
REHEARSAL = f"""
import json, sys
sys.path[:0] = {[str(ROOT / folder) for folder in ("tests/fakes", "runtime", "export", "kernels", ".")]!r}
import fake_cuda, torch
from benchmarks.gpu import checks, jobs as gpu_jobs, rates, run, stage, turns
fake_cuda.install()
torch.set_num_threads(1)  # tiny work, and other tests run beside it
turns.SIZES = {{"full": turns.SIZES["tiny"]}}
rates.FULL = rates.TINY
checks.GRAPH_ROUNDS = 2
options = run.parse(["--turns", "1", "--bundle", sys.argv[1]])
jobs = {{f"{{job.stage}} {{job.name}}": job for job in
        gpu_jobs.jobs("cuda", ["full"], ["fast", gpu_jobs.SKIPPING], lambda variant: True)}}
for name in sys.argv[3:]:
    stage.main(json.dumps(run.vars_of(options, jobs[name], None)), f"{{sys.argv[2]}}/{{name}}")
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped bundle with a `balanced` of few steps."""
    folder = tmp_path_factory.mktemp("pocket")
    for path in (ROOT / "engines" / "pocket").iterdir():
        (folder / path.name).symlink_to(path)
    manifest = json.loads((folder / "manifest.json").read_text())
    steps = [{"timestep": timestep, "guidance": 2.0, "branch": branch} for timestep, branch in STEPS]
    manifest["plans"]["balanced"]["plan"]["steps"] = steps
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def found(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each job found, by stage and name; one process runs them all."""
    out = tmp_path_factory.mktemp("found")
    command = [sys.executable, "-c", REHEARSAL, str(bundle), str(out), *JOBS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return {job: [json.loads(line) for line in (out / job).read_text().splitlines()] for job in JOBS}


def test_checks_of_a_gpu_hold(found: dict[str, list[dict[str, Any]]]) -> None:
    held = found["checks bf16"]
    names = {one["check"] for one in held}
    assert {"recorded step", "recorded clip", "no host synchronisation between steps"} <= names
    assert [one["error"] for one in held if "graphs of a" in one["check"]] == [0, 0]
    assert [one for one in held if not one["passed"]] == []
    skipped = "denoiser.latent, blocks skipped, against torch on the CPU"
    assert [one["precision"] for one in held if one["check"] == skipped] == ["bf16"]
    allowed = checks.ALLOWED["bf16"]
    largest = max(one["error"] for one in held if one["allowed"] == allowed)
    assert largest > allowed / 3, "about twice the largest: more would let mistakes pass"


@pytest.mark.parametrize("variant", ["bf16", "fp8"])
def test_turns_of_a_gpu_are_timed(found: dict[str, list[dict[str, Any]]], variant: str) -> None:
    turn = found[f"turns full-{variant}"][0]
    assert (turn["variant"], turn["plan"], turn["device"], turn["n"]) == (variant, "fast", "torch", 1)
    assert turn["gpu"] is None and turn["memory_peak_mib"] == 0  # nothing tells of this one


def test_turns_of_a_gpu_skip_blocks(found: dict[str, list[dict[str, Any]]], bundle: Path) -> None:
    fast, skipping = found["turns full-bf16"]
    assert (skipping["plan"], fast["cost_rows"]) == ("balanced-skipping", fast["branches"])
    balanced = DenoisePlan.from_dict(json.loads((bundle / "manifest.json").read_text())["plans"]["balanced"]["plan"])
    assert skipping["cost_rows"] < skipping["branches"] == balanced.network_rows


def test_rates_of_a_gpu_are_timed(found: dict[str, list[dict[str, Any]]]) -> None:
    assert [one["what"] for one in found["rates products"] if not one["passed"]] == []
