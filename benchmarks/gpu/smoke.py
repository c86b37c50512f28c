"""The first minute on a card: does each operator run, is its answer right, and how fast is it, before any turn.

Each answer is written at once. Our attention, which may end the process, comes last; of our other kernels the next jobs
tell, each family in a process of its own. It has no measurements of its own but the vae's convolutions and the
predictor's calls: the rest is rates.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.backends.torch.vae_decoder import convolve, put_channels_last
from animegamer_rt.models.vae import CACHE_FRAMES, CausalConv
from benchmarks.gpu import rates as gpu_rates
from benchmarks.gpu import turns as gpu_turns
from benchmarks.gpu.jobs import Variant
from benchmarks.gpu.parts import open_parts

Entry = dict[str, Any]
BURST_MS = 0.0
"""Here a rate need not be sustained: the stage `rates` takes that time."""
CROP = 4
"""Rows and columns of a convolution's output that are checked."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """One of the vae: channels in and out, video frames, height and width."""

    inner: int
    outer: int
    frames: int
    height: int
    width: int


FULL = (
    Convolution(512, 512, 3, 60, 90),
    Convolution(256, 256, 5, 120, 180),
    Convolution(256, 256, 9, 240, 360),
    Convolution(256, 128, 9, 480, 720),
)
"""One of each picture size in the first chunk. Source: MODEL.md section 6."""
TINY = (Convolution(32, 32, 3, 4, 6), Convolution(16, 8, 9, 8, 12))


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """One entry an answer. A part that raises is an entry, and the next part goes on, unless the card was lost."""
    started = time.perf_counter()
    for name, answers in parts(job_args).items():
        try:
            with torch.no_grad():
                for entry in answers():
                    yield {"part": name, **entry, "at_seconds": round(time.perf_counter() - started, 2)}
        except Exception as error:  # noqa: BLE001 any error costs this part only
            yield {"part": name, "passed": False, "broken": gpu_rates.describe_error(error)}


def parts(job_args: Mapping[str, Any]) -> dict[str, Callable[[], Iterator[Entry]]]:
    """Name -> what answers it, the most certain first."""
    device, library = job_args["device"], job_args["library"]
    shape = gpu_rates.FULL if device == "cuda" else gpu_rates.TINY
    found: dict[str, Callable[[], Iterator[Entry]]] = {
        "ceilings": partial(gpu_rates.ceilings, device),
        "fp8": partial(gpu_rates.products, shape, device, ("fp8",), BURST_MS),
        # So many rows has the recorded step: no multiple of 16 (pytorch issue 167882: wrong FP8 products of 15 rows).
        "fp8 of 692 rows": partial(gpu_rates.products, replace(shape, tokens=346), device, ("fp8",), BURST_MS),
        "attention": partial(gpu_rates.attention, shape, device, None, BURST_MS),
        "convolutions": partial(convolutions, device),
        "predictor": partial(predictor_calls, job_args),
    }
    if library is not None:
        found["our attention"] = partial(gpu_rates.attention, shape, device, library, BURST_MS)
    return found


def convolutions(device: str) -> Iterator[Entry]:
    """The vae's convolutions, with cudnn's choice by rule and by trial (cudnn.benchmark)."""
    before = torch.backends.cudnn.benchmark
    try:
        for by_trial in (False, True):
            torch.backends.cudnn.benchmark = by_trial
            for one in FULL if device == "cuda" else TINY:
                work = 2.0 * 27 * one.inner * one.outer * one.frames * one.height * one.width
                about = {
                    "what": f"conv3d {one.inner} to {one.outer}, {one.frames} x {one.height} x {one.width}",
                    "cudnn_benchmark": by_trial,
                }
                yield about | gpu_rates.measure_rate(partial(convolution, one, device), work, device, BURST_MS)
    finally:
        torch.backends.cudnn.benchmark = before


def convolution(one: Convolution, device: str) -> gpu_rates.Prepared:
    """A convolution as the decoder runs it, and a corner of its last frame in float64."""
    layer = CausalConv(one.inner, one.outer).to(device, torch.bfloat16)
    put_channels_last(layer)
    shape = (CACHE_FRAMES + one.frames, one.height, one.width, one.inner)
    padded = torch.randn(shape, device=device, dtype=torch.bfloat16)
    corner = padded[-3:, : CROP + 1, : CROP + 1].double().permute(3, 0, 1, 2)[None]
    assert layer.bias is not None
    expected = functional.conv3d(corner, layer.weight.double(), layer.bias.double(), padding=(0, 1, 1))

    def rows() -> Tensor:
        return convolve(padded, layer)[-1, :CROP, :CROP]

    return [partial(convolve, padded, layer)], rows, expected[0, :, 0, :CROP, :CROP].permute(1, 2, 0)


def predictor_calls(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """A prompt's history, its turn, and the strengths after the first one: random weights, plain operators.

    Each call ends with its results on the host, so the clock of the host times it.
    """
    size = "full" if job_args["device"] == "cuda" else "tiny"
    parts = open_parts({**job_args, "size": size}, Variant("bf16", "step" if size == "full" else "off"))
    predictor, given = parts.engines.predictor, gpu_turns.prompt(parts.geometry)
    past = given.history
    assert past is not None
    history = predictor.prefill(past)
    turn = predictor.prefill(given.turn, history.cache)
    choose = turn.choose_next
    assert choose is not None
    for _ in range(2):  # the second captures the graph
        choices = choose(gpu_turns.SLOTS, 0)
    calls: Mapping[str, tuple[gpu_rates.Run, tuple[FloatArray, ...]]] = {
        "three choices": (lambda: choose(gpu_turns.SLOTS, 0), (choices,)),
        "prefill of a turn": (lambda: predictor.prefill(given.turn, history.cache), (turn.shot, turn.logits)),
        "prefill of a history": (lambda: predictor.prefill(past), (history.logits,)),
    }
    for name, (call, answers) in calls.items():
        taken = gpu_rates.milliseconds([call], "cpu")
        yield {"what": name, "ms_p50": round(taken, 3), "passed": all(bool(np.isfinite(one).all()) for one in answers)}
