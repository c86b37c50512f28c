"""Checks PyTorch's parts and our kernels on this GPU, times both and turns, pocket and full size; one JSON record.

Built for a machine that is at hand for minutes: needs torch, numpy and the checkout alone, builds the kernels where
nvcc is, compares with onnxruntime where that is installed, writes the record anew after every measurement and starts
none after `--minutes`. Full size has random weights made on the GPU: good for time and memory, and for nothing else.
`--device cpu --size pocket` runs the same code without a GPU. **No record of a GPU has been made with it yet.**
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / folder) for folder in ("runtime", "export", "kernels"))]

from benchmarks import gpu_checks, gpu_kernels, gpu_rates  # noqa: E402

from animegamer_rt import energy, nvml  # noqa: E402
from animegamer_rt.backends import torch as backend  # noqa: E402
from animegamer_rt.backends.contract import Engines  # noqa: E402
from animegamer_rt.backends.torch.attention import Wanted  # noqa: E402
from animegamer_rt.backends.torch.kernels import open_kernels  # noqa: E402
from animegamer_rt.backends.torch.place import Place  # noqa: E402
from animegamer_rt.bundle import Bundle, open_bundle  # noqa: E402
from animegamer_rt.errors import AnimeGamerError  # noqa: E402
from animegamer_rt.manifest import Geometry  # noqa: E402
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize  # noqa: E402
from animegamer_rt.models.predictor import Predictor, PredictorSize  # noqa: E402
from animegamer_rt.models.vae import VaeDecoder, VaeSize  # noqa: E402
from animegamer_rt.predictor import read  # noqa: E402
from animegamer_rt.readouts import Prompt, readouts  # noqa: E402
from animegamer_rt.schedule import DenoisePlan  # noqa: E402

FULL = Geometry(height=480, width=720, latent_height=60, latent_width=90, shot_width=1920)
FULL_PREDICTOR = PredictorSize(4096, 32, 32, 8, 14336, 32284, 1920)
FULL_DENOISER = DenoiserSize(1920, 30, 30, 512, 60, 90)
"""Full size. Source: MODEL.md sections 2, 4 and 6."""
HISTORY_TURNS, CAPTION_TOKENS = 4, 24
WARM_UP = 2
"""Turns before measuring: one runs plainly, one captures."""
RANDOM = np.random.default_rng(7)


@dataclass
class Report:
    """The record so far; written after every entry, so that a run that is broken off leaves what it had."""

    path: Path
    deadline: float
    record: dict[str, Any] = field(default_factory=dict)

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        """Append an entry to a list of the record, print it, write the file."""
        self.record.setdefault(kind, []).append(entry)
        print(json.dumps({kind: entry}), flush=True)
        self.path.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")

    @property
    def time_is_up(self) -> bool:
        """Whether nothing more should be begun."""
        return time.monotonic() > self.deadline


@dataclass(frozen=True)
class Variant:
    """One way to run the parts."""

    precision: str
    graphs: backend.Graphs
    compiled: bool = False
    kernels: bool = False
    attention: Wanted = "torch"


VARIANTS = (
    Variant("bf16", "step", compiled=True),
    Variant("bf16", "step", kernels=True),
    Variant("fp8", "step", compiled=True),
    Variant("fp8", "step", kernels=True),
    Variant("int8", "step", compiled=True),
    Variant("int8", "step", kernels=True),
    Variant("fp8", "step", compiled=True, kernels=True),
    Variant("fp8", "step", kernels=True, attention="int8"),
    Variant("bf16", "step", kernels=True, attention="fastest"),
    Variant("bf16", "step"),
    Variant("bf16", "turn"),
    Variant("bf16", "off"),
)
"""On a GPU, in the order in which they are run while there is time."""


def main() -> int:
    """Check, then measure; 1 if a check failed."""
    options = parse()
    bundle = open_bundle(options.bundle)
    options.results.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    report = Report(options.results / f"{stamp}-gpu.json", time.monotonic() + 60 * options.minutes)
    report.record |= heading(options.device)
    torch.backends.cudnn.allow_tf32 = False  # float32 is the check here: a convolution's must be float32 too
    library, built = gpu_kernels.build(options.device)
    report.add("kernels_library", built)
    if library is not None:
        for check in gpu_kernels.checks(library, options.device):
            report.add("checks", check)
    for check in gpu_checks.checks(bundle, options.device, library):
        report.add("checks", check)
    if options.device == "cuda":
        for rate in gpu_rates.rates():
            report.add("rates", rate)
        if library is not None:
            for timing in gpu_kernels.timings(library):
                report.add("kernels", timing)
    variants = [Variant("fp32", "off")] if options.device == "cpu" else VARIANTS
    for size in options.size:
        for variant in variants:
            if not report.time_is_up and (library is not None or not variant.kernels):
                measure(report, bundle, size, variant, options, library)
    if options.peers and not report.time_is_up:
        measure_peers(report, options.device)
    failed = [entry for entry in report.record["checks"] if not entry["passed"]]
    print(f"record: {report.path}; {len(failed)} of {len(report.record['checks'])} checks failed")
    return 1 if failed else 0


def measure(
    report: Report, bundle: Bundle, size: str, variant: Variant, options: argparse.Namespace, library: Path | None
) -> None:
    """Times turns of every plan under one variant; an error is an entry too."""
    about: dict[str, Any] = {"size": size, "precision": variant.precision, "graphs": variant.graphs}
    about |= {
        "compiled": variant.compiled,
        "kernels": variant.kernels,
        "attention": variant.attention,
        "weights": "random" if size == "full" else bundle.manifest.origin,
    }
    try:
        play(report, bundle, variant, options, about, library if variant.kernels else None)
    except (RuntimeError, MemoryError, AnimeGamerError) as error:
        report.add("turns", {**about, "error": f"{type(error).__name__}: {error}"[:500]})
    gc.collect()  # graphs keep their memory until they are gone
    if options.device == "cuda":
        torch.cuda.empty_cache()


def measure_peers(report: Report, device: str) -> None:
    """The same work by diffusers and transformers; where they are missing, an entry that says so."""
    try:
        from benchmarks import gpu_peers

        for entry in gpu_peers.peers(device, gpu_peers.FULL if device == "cuda" else gpu_peers.TINY):
            report.add("peers", entry)
    except (ImportError, RuntimeError, MemoryError) as error:
        report.add("peers", {"error": f"{type(error).__name__}: {error}"[:500], "needs": "diffusers and transformers"})


def play(
    report: Report,
    bundle: Bundle,
    variant: Variant,
    options: argparse.Namespace,
    about: dict[str, Any],
    library: Path | None,
) -> None:
    """Opens the parts and times every plan, until the time is up."""
    full = about["size"] == "full"
    plans = {name: DenoisePlan.from_dict(bundle.plan(name)) for name in options.plans}
    geometry = FULL if full else bundle.manifest.geometry
    started = time.perf_counter()
    place = backend.open_place(options.device, variant.precision, variant.graphs != "off")
    with place.use():
        networks = full_networks(place) if full else backend.read_networks(bundle, place)
    rowwise, steps = backend.ROWWISE.get(variant.precision), list(plans.values())
    kernels, _ = open_kernels(library or False, place.device)
    engines = backend.assemble(
        place, networks, geometry, steps, variant.graphs, variant.compiled, rowwise, kernels, variant.attention
    )
    about |= {"runs_on": engines.device, "open_seconds": round(time.perf_counter() - started, 2)}
    for name, plan in plans.items():
        if report.time_is_up:
            return
        entry = {**about, "plan": name, "steps": len(plan), "branches": plan.network_rows}
        if full:
            rates = report.record.get("rates", [])
            entry["denoiser_floor_seconds"] = gpu_rates.floor_seconds(rates, plan.network_rows, variant.precision)
        report.add("turns", entry | timed_turns(engines, geometry, plan, options))


def timed_turns(engines: Engines, geometry: Geometry, plan: DenoisePlan, options: argparse.Namespace) -> dict[str, Any]:
    """Medians of the stages' seconds over the turns asked for, peak memory, and the GPU as found just after."""
    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(WARM_UP if on_gpu else 1):
        turn(engines, geometry, plan)
    with energy.of_card(*nvml.open_card()) if on_gpu else energy.of_processors() as meter:
        seconds = [turn(engines, geometry, plan) for _ in range(options.turns)]
    joules = None if meter.joules is None else round(meter.joules / options.turns, 3)
    result: dict[str, Any] = {"n": options.turns, "energy_j_per_turn": joules, "energy_source": meter.source}
    for stage in seconds[0]:
        values = sorted(one[stage] for one in seconds)
        result[f"{stage}_seconds_p50"] = round(median(values), 5)
        result[f"{stage}_seconds_max"] = round(values[-1], 5)
    if on_gpu:
        result["memory_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        result["gpu"] = smi()
    return result


def turn(engines: Engines, geometry: Geometry, plan: DenoisePlan) -> dict[str, float]:
    """Plays one turn on random inputs; the seconds of its stages, and until state and first frame."""
    latent_shape = (1, 5, geometry.latent_channels, geometry.latent_height, geometry.latent_width)
    given = prompt(geometry)
    noises = RANDOM.standard_normal((len(plan) + 1, *latent_shape), dtype=np.float32)
    started = time.perf_counter()
    prefill = read(engines.predictor, given)
    cache, choice = prefill.cache, int(prefill.logits.argmax())
    for _ in range(3):
        logits, cache = engines.predictor.extend(np.array([choice, 3, 4], np.int64), cache)
        choice = int(logits.argmax())
    state = time.perf_counter()
    denoising = engines.denoiser.begin(noises[0], prefill.shot, 10.0)
    for step, coefficients, noise in zip(plan, plan.coefficients(), noises[1:], strict=True):
        denoising.step(coefficients, float(step.timestep), step.rows, noise)
    latent = denoising.latent()
    denoised = time.perf_counter()
    _, caches = engines.vae.first(np.ascontiguousarray(latent[:, :3]), (0, 1, 2), False)
    first = time.perf_counter()
    engines.vae.next(np.ascontiguousarray(latent[:, 3:]), caches, (0, 1, 2), False)
    done = time.perf_counter()
    return {
        "predictor": state - started,
        "denoiser": denoised - state,
        "first_frame_of_vae": first - denoised,
        "vae": done - denoised,
        "turn": done - started,
    }


def prompt(geometry: Geometry) -> Prompt:
    """A prompt as long as one with a full history, of random words; needs no tokenizer."""
    shot = geometry.shot_tokens
    block = CAPTION_TOKENS + shot + 14
    length = HISTORY_TURNS * block + CAPTION_TOKENS + shot + 3
    index = np.full((2, length), -1, np.int64)
    for past in range(HISTORY_TURNS):
        index[:, past * block + CAPTION_TOKENS :][:, :shot] = np.arange(past * shot, (past + 1) * shot)
    first = length - 3 - shot
    return readouts(
        RANDOM.integers(5, 300, length),
        index,
        RANDOM.standard_normal((HISTORY_TURNS * shot, geometry.shot_width), dtype=np.float32),
        queries=range(first, first + shot),
        readout_start=first,
        history_tokens=HISTORY_TURNS * block,
        history_turns=HISTORY_TURNS,
    )


def full_networks(place: Place) -> backend.Networks:
    """Networks of full size, weights drawn on the device in its own type: nothing passes through the host."""
    with torch.device("meta"):
        made: Sequence[torch.nn.Module] = Predictor(FULL_PREDICTOR), Denoiser(FULL_DENOISER), VaeDecoder(VaeSize())
    for network in made:
        backend.settled(network, place.dtype).to_empty(device=place.device)
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.normal_(0.0, 0.02) if tensor.ndim > 1 else tensor.fill_(1.0)
    predictor, denoiser, decoder = made
    assert isinstance(predictor, Predictor) and isinstance(denoiser, Denoiser) and isinstance(decoder, VaeDecoder)
    constant = torch.randn(denoiser.size.shot_tokens, denoiser.size.hidden, device=place.device)
    return backend.Networks(predictor, denoiser, decoder, constant)


def heading(device: str) -> dict[str, Any]:
    """When, of which commit, where."""
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    on_gpu = device == "cuda"
    return {
        "format": 1,
        "kind": "gpu",
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "machine": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "software": {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda},
        "gpu": smi() if on_gpu else None,
        "note": "full size has random weights: time and memory only",
    }


def smi() -> dict[str, str]:
    """Clocks, power and driver as found now."""
    names = ("clocks.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu", "driver_version")
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except OSError as error:
        return {"error": str(error)}
    return dict(zip(names, (value.strip() for value in found.split(",")), strict=False))


def parse() -> argparse.Namespace:
    """Options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=("pocket", "full"), action="append", help="may be given twice")
    parser.add_argument("--plans", type=lambda text: text.split(","), default=["exact", "balanced", "fast"])
    parser.add_argument("--turns", type=int, default=3, help="measured turns of each plan (default: 3)")
    parser.add_argument("--peers", action="store_true", help="time diffusers and transformers on the same work, too")
    parser.add_argument("--minutes", type=float, default=8.0, help="begin nothing after these (default: 8)")
    parser.add_argument("--bundle", default="pocket", help="what is checked, and whose plans are run")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    options.size = options.size or (["pocket"] if options.device == "cpu" else ["full", "pocket"])
    if options.device == "cpu" and "full" in options.size:
        parser.error("full size on a CPU takes hours a turn")
    return options


if __name__ == "__main__":
    sys.exit(main())
