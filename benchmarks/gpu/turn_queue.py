"""Times two queued turns, the second predicted while the first is denoised, and writes their trace.

Uses the worker's queue over the engines of parts.py, without a server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from animegamer_bench.records import percentile
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.profiling.trace import PREFETCH
from animegamer_rt.serving.worker.engine_trace import EngineTracer
from animegamer_rt.stages.denoiser import Denoiser
from animegamer_rt.stages.vae import Vae
from benchmarks.gpu import machine as gpu_machine
from benchmarks.gpu import turns as gpu_turns
from benchmarks.gpu.jobs import Variant
from benchmarks.gpu.parts import Parts, open_parts

TURNS = 2


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: seconds of the queue with its turns sequential and overlapping, and the trace's file."""
    variant, name = Variant(**job_args["variant"]), job_args["plan"]
    tracer = EngineTracer(Path(job_args["results"]) / f"trace-queue-{job_args['name']}.json")
    parts = open_parts(job_args, variant)
    engines = tracer.wrap(parts.engines)
    parts, plan = replace(parts, engines=engines, vae=Vae(engines.vae)), parts.plans[name]
    for overlaps in (False, True) if job_args["device"] == "cuda" else ():  # the first eagerly, the second captures
        queue(parts, plan, overlaps)
    apart = percentile([queue(parts, plan, False) for _ in range(job_args["turns"])], 50)
    together = percentile([queue(parts, plan, True) for _ in range(job_args["turns"])], 50)
    tracer.begin(f"Two turns in a queue: {parts.name}, {name}, {variant.name}, {parts.engines.device}")
    queue(parts, plan, True)
    tracer.write()
    yield {
        "size": parts.name,
        "plan": name,
        "variant": variant.name,
        "gpu": gpu_machine.facts() if job_args["device"] == "cuda" else None,
        "turns": TURNS,
        "n": job_args["turns"],
        "seconds_apart_p50": apart,
        "seconds_overlapping_p50": together,
        "saved_seconds": round(apart - together, 5),
        "trace": f"trace-queue-{job_args['name']}.json",
    }


def queue(parts: Parts, plan: DenoisePlan, overlaps: bool) -> float:
    """Seconds of all turns; if overlapping, each is predicted while the one before is denoised and decoded."""
    given, geometry = [gpu_turns.prompt(parts.geometry) for _ in range(TURNS)], parts.geometry
    denoiser = Denoiser(parts.engines.denoiser, plan, geometry.latent_shape)
    started = time.perf_counter()
    with ThreadPoolExecutor(1, PREFETCH) as ahead:
        shot = gpu_turns.predict(parts, given[0])
        for turn, follower in enumerate([*given[1:], None], start=1):
            begun = ahead.submit(gpu_turns.predict, parts, follower) if overlaps and follower else None
            *_, denoised = denoiser.denoise(shot, gpu_turns.MOTION_SCOPE, denoiser.draw_noise(7, turn))
            for _ in parts.vae.decode(denoised.latent):
                pass
            if follower is not None:
                shot = begun.result() if begun else gpu_turns.predict(parts, follower)
    return time.perf_counter() - started
