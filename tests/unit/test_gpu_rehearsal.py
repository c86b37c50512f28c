"""What gpu.py does on a GPU alone, at tiny size on one made of the CPU: it runs to its end, and its checks hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGUN = f"""
import json, sys
sys.path[:0] = {[str(ROOT / folder) for folder in ("tests", "runtime", "export", "kernels", ".")]!r}
import fake_cuda, torch
from benchmarks import gpu, gpu_checks, gpu_jobs, gpu_rates, gpu_stage, gpu_turns
fake_cuda.install()
torch.set_num_threads(1)  # tiny work, and other tests run beside it
"""
GRAPHS = f"""{BEGUN}
from animegamer_rt.bundle import open_bundle
bundle, way = open_bundle("pocket"), gpu_checks.Way("cuda", sys.argv[1])
print(json.dumps([*gpu_checks.same_under_graphs(bundle, way), *gpu_checks.no_waiting(bundle, way)]))
"""
REHEARSAL = f"""{BEGUN}
gpu_turns.SIZES = {{"full": gpu_turns.SIZES["tiny"]}}
gpu_rates.FULL = gpu_rates.TINY
options = gpu.parse(["--turns", "1"])
jobs = {{f"{{job.stage}} {{job.name}}": job for job in
        gpu_jobs.jobs("cuda", ["full"], ["fast", gpu_jobs.SKIPPING], lambda variant: True)}}
for name in sys.argv[2:]:
    gpu_stage.main(json.dumps(gpu.vars_of(options, jobs[name], None)), f"{{sys.argv[1]}}/{{name}}")
"""


def rehearsed(folder: Path, *jobs: str) -> list[dict[str, Any]]:
    """What these jobs, by stage and name, found."""
    said(REHEARSAL, str(folder), *jobs)
    return [json.loads(line) for job in jobs for line in (folder / job).read_text().splitlines()]


def said(program: str, *words: str) -> str:
    """What a process printed that ran to its end."""
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_checks_of_a_gpu_hold(tmp_path: Path) -> None:
    found = rehearsed(tmp_path, "checks bf16")
    assert {"recorded step", "recorded clip", "no host synchronisation between steps"} <= {
        one["check"] for one in found
    }
    assert [one for one in found if "graphs of a" in one["check"]][0]["error"] == 0
    assert [one for one in found if not one["passed"]] == []
    skipped = "denoiser.latent, blocks skipped, against torch on the CPU"
    assert [one["precision"] for one in found if one["check"] == skipped] == ["bf16"]


def test_eight_bits_are_the_same_under_graphs_and_wait_for_nothing() -> None:
    found = json.loads(said(GRAPHS, "fp8"))
    assert [(one["check"].split(" against")[0], one["passed"], one["error"]) for one in found] == [
        ("graphs of a step", True, 0.0),
        ("graphs of a turn", True, 0.0),
        ("no host synchronisation between steps", True, 0.0),
    ]


@pytest.mark.parametrize("variant", ["bf16-turn", "fp8"])
def test_turns_of_a_gpu_are_timed(tmp_path: Path, variant: str) -> None:
    (turn,) = rehearsed(tmp_path, f"turns full-{variant}")
    assert (turn["variant"], turn["plan"], turn["device"], turn["n"]) == (variant, "fast", "torch", 1)
    assert turn["gpu"] is None and turn["memory_peak_mib"] == 0  # nothing tells of this one


def test_turns_of_a_gpu_skip_blocks(tmp_path: Path) -> None:
    fast, skipping = rehearsed(tmp_path, "turns full-bf16")
    assert (skipping["plan"], fast["cost"]) == ("balanced-skipping", fast["branches"])
    assert skipping["cost"] < skipping["branches"] == 20


def test_rates_of_a_gpu_are_timed(tmp_path: Path) -> None:
    found = rehearsed(tmp_path, "rates products")
    assert [one["what"] for one in found if not one["passed"]] == []
