"""Profiles each part of a turn with torch's profiler.

Runs eagerly, because kernels inside a graph have no names. Each entry has its stage's memory too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu import turns as gpu_turns
from benchmarks.gpu.jobs import Variant
from benchmarks.gpu.parts import Parts, open_parts

TOP = 30
ORDER = (0, 1, 2)
FIRST_LATENT_FRAMES = 3

Entry = dict[str, Any]


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """One entry per stage: seconds, the device's busy seconds, the most expensive kernels, memory."""
    on_gpu = job_args["device"] == "cuda"
    parts = open_parts(job_args, Variant(**job_args["variant"]))
    for name, work in stages(parts).items():
        work()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        work()
        memory = gpu_turns.memory() if on_gpu else {}
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as profiler:
            started = time.perf_counter()
            work()
            if on_gpu:
                torch.cuda.synchronize()
            seconds = time.perf_counter() - started
        found = busiest(profiler, on_gpu)
        busy = sum(entry["ms"] for entry in found) / 1000
        weights = {"weights_mib": weights_mib()} if on_gpu else {}
        yield {
            "what": name,
            "seconds": round(seconds, 5),
            "busy_seconds": round(busy, 5),
            "top": found[:TOP],
            **memory,
            **weights,
        }


def stages(parts: Parts) -> dict[str, Callable[[], object]]:
    """The stages' work, each ending with its results on the host."""
    geometry, engines = parts.geometry, parts.engines
    latent = np.random.default_rng(0).standard_normal(geometry.latent_shape, dtype=np.float32)
    shot = np.zeros((geometry.shot_tokens, geometry.shot_width), np.float32)
    plan = parts.plans["exact"]
    given, first = gpu_turns.prompt(geometry), np.ascontiguousarray(latent[:, :FIRST_LATENT_FRAMES])
    assert given.history is not None
    past = given.history

    def pair() -> object:
        denoising = engines.denoiser.start(latent, shot, gpu_turns.MOTION_SCOPE)
        denoising.step(plan.coefficients()[0], float(plan.steps[0].timestep), (0, 1), latent)
        return denoising.latent()

    return {
        "denoiser, one guided pair": pair,
        "vae, first chunk": lambda: engines.vae.first(first, ORDER, False),
        "predictor, a history": lambda: engines.predictor.prefill(past),
        "predictor, one prompt and its state": lambda: gpu_turns.predict(parts, given),
    }


def busiest(profiler: profile, on_gpu: bool) -> list[Entry]:
    """The kernels (operators on a CPU) with the most total milliseconds, in descending order."""
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    found = []
    for event in profiler.key_averages():
        if event.device_type != kind:
            continue
        microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found.append({"name": event.key[:120], "calls": event.count, "ms": round(microseconds / 1000, 4)})
    return sorted(found, key=lambda entry: -entry["ms"])


def weights_mib() -> float:
    """GPU memory in use between stages: weights, buffers and caches."""
    return round(torch.cuda.memory_allocated() / 2**20, 1)
