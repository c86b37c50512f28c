"""`animegamer-rt bench`: measures how long a turn takes on this machine, by stage, and how much memory playing needs.

Measures whole turns of a game whose history is full, without encoding clips. Writes one JSON record for each plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS, Geometry
from animegamer_rt.engine_config import DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import BackendError, BundleNotFoundError, ConfigError
from animegamer_rt.events import StageSeconds
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling import energy, nvml
from animegamer_rt.profiling.child_process import child_command, describe_failure
from animegamer_rt.profiling.energy import EnergyMeter
from animegamer_rt.profiling.host import describe_host, environment, percentile, write_record
from animegamer_rt.profiling.trace import TurnTrace, check_trace, trace_turn, write_trace
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

from .presets import Preset
from .roofline import cpu_roofline, gpu_roofline

STAGES = ("predictor", "denoiser", "vae")
SEED = 7
LIBRARIES: Mapping[str, str] = MappingProxyType(
    {"cuda": "onnxruntime-gpu", "tensorrt": "tensorrt-rtx-cu13", "torch": "torch", "torch-cpu": "torch"}
)
"""Whose version a record names, by device; onnxruntime's for the others."""
ON_CPU = ("cpu", "cpu-fp32", "torch-cpu")
P95_TURNS = 20
"""Fewest turns of which the 95th percentile is not just the slowest."""
INDENT = " " * 18


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured, and where to. preset: the name of these settings, None if one of them was changed."""

    settings: Preset = Preset()
    preset: str | None = None
    engines: EngineConfig = DEFAULT_CONFIG
    results: Path = Path("bench-results")
    trace: Path | None = None


def bench(options: BenchOptions) -> int:
    """Measure every plan of the settings; print and write a record of each, and the median turn's trace.

    Raises AnimeGamerError.
    """
    make_folder(options.results)
    if options.trace is not None:
        if len(options.settings.plans) > 1:
            raise ConfigError("a trace is of one plan", found=", ".join(options.settings.plans), do="give --plan")
        check_trace(options.trace)
    bundle = _open(options.settings)
    plans = options.settings.plans or (bundle.default_plan,)
    for plan in plans:
        bundle.plan(plan)
    # Before the engines are opened here: a GPU may not hold both.
    fresh = {plan: _fresh_process(bundle, plan, options) for plan in plans}
    engines = open_engines(bundle, options.engines)
    for plan in plans:
        record = _measure(options, engines, Pipeline.open(bundle, engines, plan=plan), fresh[plan])
        path = write_record(options.results, f"{record['size']}-{record['plan']}", record)
        _print_summary(record)
        print(f"record: {path}")
        print(json.dumps(record))
    return 0


def _open(settings: Preset) -> Bundle:
    try:
        return open_bundle(settings.bundle)
    except BundleNotFoundError as error:
        if settings.made_by is None:
            raise
        raise BundleNotFoundError(error.what, found=error.found, do=f"run: {settings.made_by}") from error


def _measure(
    options: BenchOptions, engines: Engines, pipeline: Pipeline, fresh: Mapping[str, float | None]
) -> dict[str, Any]:
    """The record of one plan. fresh: what a process of its own was measured at."""
    manifest, turns = pipeline.bundle.manifest, options.settings.turns
    playback = manifest.geometry.frames / manifest.geometry.fps
    precision = {part: engines.part_precision(pipeline.bundle, part) for part in manifest.parts}
    cost = pipeline.plan.cost(engines.denoiser.skippable_blocks)
    if options.engines.device in ON_CPU:
        card, meter, where = None, energy.cpu_energy(), describe_host()
        floor = cpu_roofline(pipeline.bundle, cost)
    else:
        card, why_not = nvml.open_nvml()
        name = str(card.facts()["name"]) if card is not None else engines.device
        meter, where = energy.gpu_energy(card, why_not), f"{name}, {describe_host()}"
        floor = gpu_roofline(pipeline.bundle, cost, name, precision["denoiser"], engines.attention)
    print(f"\n{manifest.name}, plan {pipeline.plan_name}, on {where}\na clip plays {playback:.2f} s")
    measured = measure_turns(pipeline, turns, meter)
    gpu = card.facts() if card is not None else None  # as found while it is still warm
    figures = summary([turn.done.seconds for turn in measured])
    if options.trace is not None:
        median = sorted(measured, key=lambda turn: turn.done.seconds.total)[len(measured) // 2]
        title = f"One turn: {manifest.name}, {pipeline.plan_name}, {where}"
        print(f"trace:  {write_trace(options.trace, median, pipeline.plan, title)}")
    return {
        **environment(LIBRARIES.get(options.engines.device, "onnxruntime")),
        "machine": where,
        "gpu": gpu,
        "device": options.engines.device,
        "runs_on": engines.device,
        "preset": options.preset,
        "size": manifest.name,
        "fingerprint": None if manifest.origin == RANDOM_WEIGHTS else pipeline.bundle.fingerprint,
        "origin": manifest.origin,
        "shape": [manifest.geometry.frames, manifest.geometry.height, manifest.geometry.width],
        "plan": pipeline.plan_name,
        "steps": len(pipeline.plan),
        "branches": pipeline.plan.network_rows,
        "cost_rows": cost,
        "peer": None,
        "precision": precision,
        "attention": engines.attention,
        "n": turns,
        "playback_seconds": playback,
        "denoiser_floor_seconds": floor.seconds if floor else None,
        "floor_source": floor.source if floor else None,
        "ratio_to_floor": round(figures["stages"]["denoiser"]["p50"] / floor.seconds, 3) if floor else None,
        **figures,
        **latency_fields(measured, manifest.geometry),
        "energy_j_per_turn": None if meter.joules is None else round(meter.joules / turns, 3),
        "energy_source": meter.source,
        **fresh,
        **_memory(options.engines.device, engines, card, fresh["host_memory_peak_mib"]),
        "fidelity": dict(manifest.plans[pipeline.plan_name].fidelity),
    }


def measure_turns(pipeline: Pipeline, turns: int, meter: EnergyMeter) -> list[TurnTrace]:
    """Play the bundle's example instructions: `history_turns` + 1 turns untimed, then `turns` timed and metered."""
    session = Session.start(pipeline.bundle, seed=SEED)
    texts = cycle(example_script(pipeline.bundle.manifest.world))

    def play(text: str) -> TurnTrace:
        return trace_turn(pipeline.run_turn(session, Instruction.parse(text)))

    for text in islice(texts, session.history_turns + 1):
        play(text)
    with meter:
        return [play(text) for text in islice(texts, turns)]


def latency_fields(measured: Sequence[TurnTrace], geometry: Geometry) -> dict[str, Any]:
    """Record fields: seconds to the state and to the first frame; frames per second, and playback over turn time."""
    turn = percentile([one.done.seconds.total for one in measured], 50)
    return {
        "seconds_to_state_p50": percentile([one.to_state for one in measured], 50),
        "seconds_to_first_frame_p50": percentile([one.to_first_frame for one in measured], 50),
        "fps": round(geometry.frames / turn, 3) if turn else None,
        "real_time_factor": round(geometry.frames / geometry.fps / turn, 3) if turn else None,
    }


def summary(measured: list[StageSeconds]) -> dict[str, Any]:
    """p50 and p95 of whole turns and of each stage, in seconds."""
    totals = [turn.total for turn in measured]
    return {
        "seconds_per_turn_p50": percentile(totals, 50),
        "seconds_per_turn_p95": percentile(totals, 95),
        "stages": {
            stage: {f"p{p}": percentile([getattr(turn, stage) for turn in measured], p) for p in (50, 95)}
            for stage in STAGES
        },
    }


def _memory(device: str, engines: Engines, card: nvml.NvmlDevice | None, host_mib: float | None) -> dict[str, Any]:
    """The peak memory of what runs the parts, and by whose count."""
    if device in ON_CPU:
        return {"memory_peak_mib": host_mib, "memory_source": "resident in the process that plays"}
    if engines.memory is not None:
        held = engines.memory()
        used = None if held.allocated_bytes is None else _mib(held.allocated_bytes)
        return {
            "memory_peak_mib": _mib(held.peak_bytes),
            "memory_allocated_peak_mib": used,
            "memory_source": held.source,
        }
    taken = card.used_bytes() if card is not None else None
    if taken is None:
        return {"memory_peak_mib": None, "memory_source": "not measured: neither library nor driver says it"}
    return {"memory_peak_mib": _mib(taken), "memory_source": "in use on the card after the turns, of all programs"}


def _mib(count: int) -> float:
    return round(count / 2**20, 1)


def _fresh_process(bundle: Bundle, plan: str, options: BenchOptions) -> dict[str, float | None]:
    """Seconds from process start to first prompt; peak host memory of a process that plays two turns with clips."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        engine_args = [str(bundle.folder), plan, str(Path(folder) / "ready"), *options.engines.to_args()]
        _run(child_command("animegamer_rt.play.command", *engine_args))
        ready = time.perf_counter() - start
        script = Path(folder) / "two-turns.txt"
        script.write_text("\n".join(example_script(bundle.manifest.world)[:2]), encoding="utf-8")
        command = child_command("animegamer_rt", "play", "--bundle", str(bundle.folder), "--plan", plan)
        command += options.engines.to_args()
        command += ["--instructions", str(script), "--out", str(Path(folder) / "game")]
        peak = _run(command)
    return {"first_prompt_seconds": round(ready, 3), "host_memory_peak_mib": peak}


def _run(command: list[str]) -> float | None:
    """Run a command to its end; its peak memory in MiB, None where the system does not tell. Raises BackendError."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        peak = None
        if sys.platform == "win32":
            process.wait()
        else:
            _, status, usage = os.wait4(process.pid, 0)  # its own peak, not that of all plans measured so far
            process.returncode = os.waitstatus_to_exitcode(status)
            peak = round(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**20, 1)
        if process.returncode:
            stderr.seek(0)
            output = stderr.read().decode(errors="replace")
            raise BackendError("a fresh process cannot play this bundle", found=describe_failure(output))
    return peak


def _print_summary(record: Mapping[str, Any]) -> None:
    """For a terminal of 80 columns."""
    print(f"{'seconds':<12}{'median':>10}{'p95':>10}   (n = {record['n']} turns)")
    for stage, seconds in record["stages"].items():
        print(f"{stage:<12}{seconds['p50']:>10.3f}{seconds['p95']:>10.3f}")
    print(f"{'turn':<12}{record['seconds_per_turn_p50']:>10.3f}{record['seconds_per_turn_p95']:>10.3f}")
    if record["n"] < P95_TURNS:
        print(f"Below {P95_TURNS} turns, p95 is close to the slowest one.")
    print(f"state predicted   {record['seconds_to_state_p50']:.2f} s after the instruction (median)")
    print(f"first frame       {record['seconds_to_first_frame_p50']:.2f} s after the instruction (median)")
    print(f"speed             {record['fps']} frames/s, {record['real_time_factor']} x real time")
    if record["denoiser_floor_seconds"] is not None:
        bound, ratio = record["denoiser_floor_seconds"], record["ratio_to_floor"]
        print(f"roofline bound    {bound:.3f} s of denoising; measured: {ratio} x the bound")
        print(f"{INDENT}({record['floor_source']})")
    print(f"start of process  {record['first_prompt_seconds']:.2f} s until the first instruction can be typed")
    print(f"peak memory       {record['memory_peak_mib']} MiB, {record['memory_source']}")
    joules, source = record["energy_j_per_turn"], record["energy_source"]
    print(f"energy            {source}" if joules is None else f"energy            {joules:.1f} J per turn, {source}")
    for name, value in (record["gpu"] or {}).items():
        print(f"{name:<17} {value}")
