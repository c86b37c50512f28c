"""What runs on a GPU alone, on one made of the CPU: gpu.py ends and its checks hold; eager is eager."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import checks as gpu_checks

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import open_bundle

ROOT = Path(__file__).resolve().parents[2]
BEGUN = f"""
import json, sys
sys.path[:0] = {[str(ROOT / folder) for folder in ("tests/fakes", "runtime", "export", "kernels", ".")]!r}
import fake_cuda, torch
from benchmarks.gpu import checks as gpu_checks, jobs as gpu_jobs, rates as gpu_rates
from benchmarks.gpu import run as gpu, stage as gpu_stage, turns as gpu_turns
fake_cuda.install()
torch.set_num_threads(1)  # tiny work, and other tests run beside it
"""
GRAPHS = f"""{BEGUN}
from animegamer_rt.bundle.loader import open_bundle
bundle, way = open_bundle("pocket"), gpu_checks.BackendVariant("cuda", sys.argv[1])
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

EAGER_OR_NOT = f"""
import json, sys
sys.path[:0] = {[str(ROOT / folder) for folder in ("tests/fakes", "runtime", "export", "kernels", ".")]!r}
import fake_cuda, torch
from benchmarks.gpu import checks as gpu_checks

from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.backends.torch.loader import load
from animegamer_rt.bundle.loader import open_bundle
fake_cuda.install()
torch.set_num_threads(1)
captured, graph = [], torch.cuda.graph
torch.cuda.graph = lambda *given, **more: captured.append(given) or graph(*given, **more)
bundle, eager = open_bundle("pocket"), None
for graphs in ("off", "step"):
    captured.clear()
    engines = load(bundle, EngineConfig("torch", "fp32"), graphs=graphs, kernels=False)
    for _ in range(2):
        found = dict(gpu_checks.answers(bundle, engines))
    eager = eager or found
    equal = all((eager[name] == values).all() for name, values in found.items())
    print(json.dumps({{"device": engines.device, "captured": len(captured), "equal": equal}}))
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
    allowed = gpu_checks.ALLOWED["bf16"]
    largest = max(one["error"] for one in found if one["allowed"] == allowed)
    assert largest > allowed / 3, "about twice the largest: more would let mistakes pass"


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
    assert (skipping["plan"], fast["cost_rows"]) == ("balanced-skipping", fast["branches"])
    balanced = DenoisePlan.from_dict(open_bundle("pocket").plan("balanced"))
    assert skipping["cost_rows"] < skipping["branches"] == balanced.network_rows


def test_rates_of_a_gpu_are_timed(tmp_path: Path) -> None:
    found = rehearsed(tmp_path, "rates products")
    assert [one["what"] for one in found if not one["passed"]] == []


def test_engines_without_graphs_capture_none_and_answer_as_those_with_graphs() -> None:
    done = subprocess.run([sys.executable, "-c", EAGER_OR_NOT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    eager, step = map(json.loads, done.stdout.splitlines())
    assert "Fake, eager" in eager["device"] and eager["captured"] == 0
    # A pair and a single row, each plain and with blocks kept; a row with blocks skipped; three tokens; two chunks.
    assert "Fake, CUDA graphs" in step["device"] and step["captured"] == 8
    assert step["equal"]
