"""`animegamer-rt bench run`: how long a turn takes on this machine, by stage, and how much memory playing needs.

Measures whole turns, without encoding clips: of a frozen suite, or of a game whose history is full. Writes one JSON
record for each plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS
from animegamer_rt.bundle.roles import DENOISER, ROLES, graph_names
from animegamer_rt.engine_config import CPU_DEVICES, DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import BundleNotFoundError, ConfigError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling import activity, nvml
from animegamer_rt.profiling.host import describe_host, environment, machine_facts, write_record
from animegamer_rt.profiling.nvml import EnergyMeter
from animegamer_rt.profiling.trace import check_trace, write_trace

from .measure import TimedTurn, measure_fresh_process, measure_suite, measure_turns
from .presets import ONE_GAME, SUITE_GAMES, TIMED, Preset, Suite, load_suite, results_folder
from .quality_gate import judge, play_gate
from .records import SAMPLES, STAGES, TURN_FORMAT, differ, figures_of, unsteady
from .report import print_record
from .roofline import Roofline, cpu_roofline, gpu_roofline

LIBRARIES: Mapping[str, str] = MappingProxyType(
    {"cuda": "onnxruntime-gpu", "tensorrt": "tensorrt-rtx-cu13", "torch": "torch", "torch-cpu": "torch"}
)
"""Whose version a record names, by device; onnxruntime's for the others."""
GATE_TURNS = 2


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What is measured, and where to. preset: the name of these settings, None if one of them was changed.

    suite: measured instead of the settings' turns.
    """

    settings: Preset = Preset()
    preset: str | None = None
    engines: EngineConfig = DEFAULT_CONFIG
    results: Path = field(default_factory=results_folder)
    trace: Path | None = None
    suite: Suite | None = None


@dataclass(frozen=True, slots=True)
class _Machine:
    """Where the turns run, in words, and what counts there."""

    name: str
    card: nvml.NvmlDevice | None
    meter: EnergyMeter


def bench(options: BenchOptions) -> int:
    """Measure every plan of the settings; print and write a record of each, and the median turn's trace.

    Raises AnimeGamerError; KeyboardInterrupt after Ctrl-C, when the record of the turns so far is written.
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
    fresh = {plan: measure_fresh_process(bundle, plan, options.engines) for plan in plans}
    engines = open_engines(bundle, options.engines, plan=plans[0])
    for plan in plans:
        if engines.parts != bundle.parts_of(plan):
            del engines  # a GPU may not hold both
            engines = open_engines(bundle, options.engines, plan=plan)
        record = _measure(options, engines, Pipeline.open(bundle, engines, plan=plan), fresh[plan])
        print_record(record)
        try:
            name = f"{record['bundle']}-{record['plan']}"
            print(f"record: {write_record(options.results, name, record)}")
        finally:  # where it cannot be written, this is what is left of the run
            print(json.dumps({name: value for name, value in record.items() if name != SAMPLES}))
        if not record["complete"]:
            raise KeyboardInterrupt
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
    manifest, suite = pipeline.bundle.manifest, options.suite
    on = _machine(options.engines.device, engines)
    roles = [role for role in ROLES if engines.parts.graphs(role)[0] in manifest.parts]
    precision = {name: engines.precision_of(pipeline.bundle, role) for role in roles for name in graph_names(role)}
    playback = manifest.geometry.frames / manifest.geometry.fps
    print(f"\n{manifest.name}, plan {pipeline.plan_name}, on {on.name}\na clip plays {playback:.2f} s", flush=True)
    if suite is not None:
        long = f"at least {suite.seconds:g} s and {suite.turns} turns"
        print(f"suite {suite.number}: {long}; Ctrl-C keeps the turns so far", flush=True)
    read, texts = activity.reader(on.card), example_script(manifest.world)[:GATE_TURNS]

    before, bounds = activity.watch_alone(read), [_bound(options, engines, pipeline, precision, on)]
    clips = play_gate(pipeline, texts)
    with activity.Watch(read) as watch:
        if suite is None:
            timed = measure_turns(pipeline, options.settings.turns, on.meter)
        else:
            timed = measure_suite(pipeline, suite, on.meter)
    gpu = on.card.facts() if on.card is not None else None  # as found while it is still warm
    gate: dict[str, Any] = {"passed": None}
    complete, after = timed.complete, activity.describe(watch.readings[-1:] * 2)
    try:
        if complete:
            gate = judge(pipeline, engines, texts, clips)
        bounds.append(_bound(options, engines, pipeline, precision, on))
        after = activity.watch_alone(read)
    except KeyboardInterrupt:  # what was timed is kept
        complete = False
        bounds = [bounds[0], None]

    traces = [one.trace for one in timed.turns]
    seconds = [trace.done.seconds.total for trace in traces]
    columns = samples(timed.turns)
    figures = figures_of(columns, manifest.geometry.frames, playback)
    during = activity.describe(watch.readings)
    reasons = unsteady(seconds, during, complete)
    if options.trace is not None:
        median = sorted(traces, key=lambda trace: trace.done.seconds.total)[len(traces) // 2]
        title = f"One turn: {manifest.name}, {pipeline.plan_name}, {on.name}"
        print(f"trace:  {write_trace(options.trace, median, pipeline.plan, title)}")
    return {
        **environment(LIBRARIES.get(options.engines.device, "onnxruntime")),
        "format": TURN_FORMAT,
        "machine": on.name,
        **machine_facts(),
        "gpu": gpu,
        "device": options.engines.device,
        "runs_on": engines.device,
        "preset": options.preset,
        # A suite that was shortened is no suite.
        "suite": suite.number if suite and suite == load_suite(suite.number) else None,
        "suite_sha256": suite.sha256 if suite else None,
        "timed": f"{TIMED} {SUITE_GAMES if suite else ONE_GAME}",
        "bundle": manifest.name,
        "fingerprint": None if manifest.origin == RANDOM_WEIGHTS else pipeline.bundle.fingerprint,
        "origin": manifest.origin,
        "shape": [manifest.geometry.frames, manifest.geometry.height, manifest.geometry.width],
        "plan": pipeline.plan_name,
        "steps": len(pipeline.plan),
        "network_rows": pipeline.plan.network_rows,
        "cost_rows": pipeline.plan.cost(engines.denoiser.skippable_blocks),
        "peer": None,
        "precision_asked": options.engines.precision,
        "precision": precision,
        "attention": engines.attention,
        "n": len(traces),
        "complete": complete,
        "unsteady": reasons,
        "quality_gate": gate,
        "activity": {"before": before, "during": during, "after": after},
        "playback_seconds": playback,
        **_floor(bounds, figures["stages"][DENOISER]["p50"]),
        **figures,
        "sustained_seconds_per_turn": round(timed.seconds / len(traces), 4),
        "energy_j_per_turn": None if on.meter.joules is None else round(on.meter.joules / len(traces), 3),
        "energy_source": on.meter.source,
        **fresh,
        **_memory(options.engines.device, engines, on.card, fresh["host_memory_peak_mib"]),
        "fidelity": dict(manifest.plans[pipeline.plan_name].fidelity),
        SAMPLES: columns,
    }


def samples(turns: Sequence[TimedTurn]) -> dict[str, list[float]]:
    """Every timed turn: its game, its number in it, its start, and seconds, as a column each."""
    rows = [
        {
            "game": one.game,
            "turn": one.turn,
            "at": one.at,
            "seconds": one.trace.done.seconds.total,
            **{stage: getattr(one.trace.done.seconds, stage) for stage in STAGES},
            "to_state": one.trace.to_state,
            "to_first_frame": one.trace.to_first_frame,
        }
        for one in turns
    ]
    return {name: [round(row[name], 5) for row in rows] for name in rows[0]}


def _machine(device: str, engines: Engines) -> _Machine:
    if device in CPU_DEVICES:
        return _Machine(describe_host(), None, EnergyMeter(None))
    card, why_not = nvml.open_nvml()
    name = str(card.facts()["name"]) if card is not None else engines.device
    return _Machine(f"{name}, {describe_host()}", card, EnergyMeter(card, why_not))


def _bound(
    options: BenchOptions, engines: Engines, pipeline: Pipeline, precision: Mapping[str, str], on: _Machine
) -> Roofline | None:
    cost, part = pipeline.plan.cost(engines.denoiser.skippable_blocks), engines.parts.denoiser
    if options.engines.device in CPU_DEVICES:
        return cpu_roofline(pipeline.bundle, cost, part)
    name = str(on.card.facts()["name"]) if on.card is not None else engines.device
    return gpu_roofline(pipeline.bundle, cost, name, precision[DENOISER], engines.attention, part)


def _floor(bounds: Sequence[Roofline | None], denoiser: float) -> dict[str, Any]:
    """The bound before and after; void if they differ by a tenth, otherwise the smaller one counts."""
    first, last = bounds
    found: dict[str, Any] = {
        "denoiser_floor_before_seconds": first.seconds if first else None,
        "denoiser_floor_after_seconds": last.seconds if last else None,
        "denoiser_floor_seconds": None,
        "floor_source": first.source if first else None,
        "ratio_to_floor": None,
    }
    if first is None or last is None:
        return found
    if differ(first.seconds, last.seconds):
        return {**found, "floor_source": f"void, it changed by a tenth or more: {first.source}"}
    floor = min(first.seconds, last.seconds)
    return {**found, "denoiser_floor_seconds": floor, "ratio_to_floor": round(denoiser / floor, 3)}


def _memory(device: str, engines: Engines, card: nvml.NvmlDevice | None, host_mib: float | None) -> dict[str, Any]:
    """The peak memory of what runs the parts, and by whose count."""
    if device in CPU_DEVICES:
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
