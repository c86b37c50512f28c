"""`animegamer-rt bench run`: seconds per turn on this machine, by stage, and memory.

Measures whole turns of one plan without encoding, of a frozen suite or of a game with a full history. Writes a JSON
record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.bundle.manifest import EXACT, RANDOM_WEIGHTS
from animegamer_rt.bundle.roles import ROLES, graph_names
from animegamer_rt.engine_config import CPU_DEVICES, DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import OutputError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.host import describe_host, environment

from .machine import Card, Watch, describe, machine_facts, open_card, reader, watch_alone
from .records import SAMPLES, TURN_FORMAT, figures_of, unsteady, write_record
from .suites import ONE_GAME, SUITE_GAMES, TIMED, TURNS, Suite, load_suite, results_folder
from .table import print_record
from .turns import judge, measure_fresh_process, measure_suite, measure_turns, play_gate

LIBRARIES: Mapping[str, str] = MappingProxyType(
    {
        "cuda": "onnxruntime-gpu",
        "tensorrt": "tensorrt-rtx-cu13",
        "rtx": "onnxruntime-ep-nv-tensorrt-rtx-cu13",
        "torch": "torch",
        "torch-cpu": "torch",
    }
)
"""The package whose version a record names, by device; onnxruntime for the others."""
GATE_TURNS = 2


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure, and where to write. plan: None for the bundle's default. suite: measured instead of `turns`."""

    bundle: str = "pocket"
    plan: str | None = None
    turns: int = TURNS
    engines: EngineConfig = DEFAULT_CONFIG
    results: Path = field(default_factory=results_folder)
    suite: Suite | None = None


def bench(options: BenchOptions) -> int:
    """Measures a plan; prints and writes its record.

    Raises AnimeGamerError; KeyboardInterrupt after Ctrl-C, once the record of the turns so far is written.
    """
    make_folder(options.results)
    bundle = open_bundle(options.bundle)
    plan = options.plan or bundle.default_plan
    bundle.plan(plan)
    # Before the engines are opened here: a GPU may not hold both.
    fresh = measure_fresh_process(bundle, plan, options.engines)
    engines = open_engines(bundle, options.engines, plan=plan)
    record = _measure(options, engines, Pipeline.open(bundle, engines, plan=plan), fresh)
    print_record(record)
    try:
        print(f"record: {write_record(options.results, f'{bundle.manifest.name}-{plan}', record)}")
    except OutputError:  # this is all that remains of the run
        print(json.dumps({name: value for name, value in record.items() if name != SAMPLES}))
        raise
    if not record["complete"]:
        raise KeyboardInterrupt
    return 0


def _measure(
    options: BenchOptions, engines: Engines, pipeline: Pipeline, fresh: Mapping[str, float | None]
) -> dict[str, Any]:
    """The record of one plan. fresh: figures of separate processes."""
    manifest, suite, device = pipeline.bundle.manifest, options.suite, options.engines.device
    card = None if device in CPU_DEVICES else open_card()
    card_name = str(card.facts()["name"]) if card is not None else engines.device
    machine = describe_host() if device in CPU_DEVICES else f"{card_name}, {describe_host()}"
    read = reader(card)
    roles = [role for role in ROLES if engines.parts.graphs(role)[0] in manifest.parts]
    precision = {name: engines.precision_of(pipeline.bundle, role) for role in roles for name in graph_names(role)}
    playback = manifest.geometry.frames / manifest.geometry.fps
    print(f"\n{manifest.name}, plan {pipeline.plan_name}, on {machine}\na clip plays {playback:.2f} s", flush=True)
    if suite is not None:
        long = f"at least {suite.seconds:g} s and {suite.turns} turns"
        print(f"suite {suite.number}: {long}; Ctrl-C keeps the turns so far", flush=True)

    texts = example_script(manifest.world)[:GATE_TURNS]
    before, clips = watch_alone(read), play_gate(pipeline, texts)
    with Watch(read) as watch:
        if suite is None:
            timed = measure_turns(pipeline, options.turns)
        else:
            timed = measure_suite(pipeline, suite)
    gpu = card.facts() if card is not None else None  # while it is still warm
    memory = _memory(device, engines, card, fresh["host_memory_peak_mib"])  # before the gate may open other parts
    gate: dict[str, Any] = {"passed": None}

    def exact() -> Engines:
        bundle = pipeline.bundle
        same = engines.parts == bundle.parts_of(EXACT)
        return engines if same else open_engines(bundle, options.engines, plan=EXACT)

    complete, after = timed.complete, describe(watch.readings[-1:] * 2)
    try:
        if complete:
            gate = judge(pipeline, exact, texts, clips)
        after = watch_alone(read)
    except KeyboardInterrupt:  # keep what was timed
        complete = False

    columns, count, during = timed.columns, len(timed.rows), describe(watch.readings)
    return {
        **environment(LIBRARIES.get(device, "onnxruntime")),
        "format": TURN_FORMAT,
        "machine": machine,
        **machine_facts(),
        "gpu": gpu,
        "device": device,
        "runs_on": engines.device,
        # An interrupted suite is not a suite.
        "suite": suite.number if suite and suite == load_suite(suite.number) else None,
        "suite_sha256": suite.sha256 if suite else None,
        "timed": f"{TIMED} {SUITE_GAMES if suite else ONE_GAME}",
        "bundle": manifest.name,
        "fingerprint": None if manifest.origin == RANDOM_WEIGHTS else pipeline.bundle.fingerprint,
        "origin": manifest.origin,
        "shape": [manifest.geometry.frames, manifest.geometry.height, manifest.geometry.width],
        "plan": pipeline.plan_name,
        "steps": len(pipeline.plan),
        "network_rows": pipeline.plan.network_evaluations,
        "peer": None,
        "precision_asked": options.engines.precision,
        "precision": precision,
        "attention": engines.attention,
        "n": count,
        "complete": complete,
        "unsteady": unsteady(columns["seconds"], during, complete),
        "quality_gate": gate,
        "activity": {"before": before, "during": during, "after": after},
        "playback_seconds": playback,
        **figures_of(columns, manifest.geometry.frames, playback),
        "sustained_seconds_per_turn": round(timed.seconds / count, 4),
        **fresh,
        **memory,
        "fidelity": dict(manifest.plans[pipeline.plan_name].fidelity),
        SAMPLES: columns,
    }


def _memory(device: str, engines: Engines, card: Card | None, host_mib: float | None) -> dict[str, Any]:
    """The peak memory of the process that runs the parts, and its source."""
    if device in CPU_DEVICES:
        return {"memory_peak_mib": host_mib, "memory_source": "resident set of the playing process"}
    if engines.memory is not None:
        held = engines.memory()
        return {
            "memory_peak_mib": _mib(held.peak_bytes),
            "memory_allocated_peak_mib": None if held.allocated_bytes is None else _mib(held.allocated_bytes),
            "memory_source": held.source,
        }
    taken = card.used_bytes() if card is not None else None
    if taken is None:
        return {"memory_peak_mib": None, "memory_source": "not measured: neither library nor driver reports it"}
    return {"memory_peak_mib": _mib(taken), "memory_source": "in use on the card after the turns, by all programs"}


def _mib(count: int) -> float:
    return round(count / 2**20, 1)
