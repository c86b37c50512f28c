"""This GPU's rates on the denoiser's shapes: bf16, FP8 and INT8 products, and attention.

They give the roofline bound of a turn, and the attention to use. Some rows of each output are checked; a wrong result
gives no rate. Without a GPU the same code runs at tiny shapes.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from animegamer_rt.backends.torch.attention import run_attention
from animegamer_rt.backends.torch.device import REFUSALS
from animegamer_rt.backends.torch.kernels import Kernels, RowNorm
from animegamer_rt.errors import AnimeGamerError, DeviceLostError

SDPA_BACKENDS: Mapping[str, SDPBackend] = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
"""PyTorch's implementations, of which it chooses one itself."""
Entry = dict[str, Any]
Run = Callable[[], object]
Prepared = tuple[Sequence[Run], Callable[[], Tensor], Tensor]
"""(runs over different inputs, some rows of the first run's output, their expected values)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A CFG pair: tokens of one branch, width, heads, layers."""

    tokens: int
    hidden: int
    heads: int
    layers: int


Maker = Callable[[Tensor, Tensor], tuple[Callable[[], Tensor], Tensor]]
"""(x, weight) -> a function that multiplies them, and the expected first rows."""
FULL, TINY = Shape(6976, 1920, 30, 30), Shape(64, 128, 2, 2)
"""Full size: MODEL.md section 4."""
WIDTHS: Mapping[str, tuple[int, int]] = {"qkv": (1, 3), "output": (1, 1), "mlp_in": (1, 4), "mlp_out": (4, 1)}
"""A block's products, in widths of the denoiser."""


FP8_MAX, INT8_MAX, EPSILON = 448.0, 127.0, 1e-6
CHECKED_ROWS = 64
TOLD_CHARACTERS = 6000
ALLOWED = 3e-2
"""Relative error allowed for the checked rows: bfloat16 rounding is under 1e-2."""
WARM_UP, REPEATS, GRAPH_MS, MAX_RUNS = 3, 7, 10.0, 200
"""Target milliseconds per graph replay, and minimum replays."""
SUSTAINED_MS = 1500.0
"""Minimum duration of a rate measurement: turns run at the card's power limit, which a short burst does not reach."""


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """One entry per shape and library: milliseconds, TFLOP/s and error, or the failure."""
    device = job_args["device"]
    shape = FULL if device == "cuda" else TINY
    with torch.no_grad():
        if job_args["name"] == "products":
            yield from products(shape, device)
        else:
            library = job_args["library"] if job_args["kernels"] else None
            yield from attention(shape, device, library)


def products(
    shape: Shape,
    device: str,
    precisions: Sequence[str] = ("bf16", "fp8", "int8"),
    sustained_ms: float = SUSTAINED_MS,
) -> Iterator[Entry]:
    """The four large products of a block, by precision."""
    makers: Mapping[str, Maker] = {"bf16": plain_product, "fp8": fp8_product, "int8": int8_product}
    for name, (inner, outer) in WIDTHS.items():
        rows, inner, outer = 2 * shape.tokens, inner * shape.hidden, outer * shape.hidden
        weight = torch.randn(outer, inner, device=device, dtype=torch.bfloat16)
        inputs = [torch.randn(rows, inner, device=device, dtype=torch.bfloat16) for _ in range(2)]
        for precision in precisions:
            make = partial(_products, makers[precision], inputs, weight)
            about = {"what": f"{name} {precision}", "of": f"product {precision}", "a_pair": shape.layers}
            yield about | measure_rate(make, 2.0 * rows * inner * outer, device, sustained_ms)


def attention(shape: Shape, device: str, kernels: str | None, sustained_ms: float = SUSTAINED_MS) -> Iterator[Entry]:
    """Attention on the output of the qkv product, [B, S, 3, H, d], by each of PyTorch's implementations.

    kernels: our library; then only its attention is timed, both norms included.
    """
    width = shape.hidden // shape.heads
    qkv = torch.randn(2, shape.tokens, 3, shape.heads, width, device=device, dtype=torch.bfloat16)
    qkv[:, :, :2] = functional.layer_norm(qkv[:, :, :2], (width,))  # already normalised: again changes only rounding
    work = 4.0 * 2 * shape.heads * shape.tokens**2 * width
    query, key, value = (part.transpose(1, 2) for part in qkv.unbind(2))
    some = query[0, 0, :CHECKED_ROWS].double() @ key[0, 0].double().T / width**0.5
    expected = some.softmax(-1) @ value[0, 0].double()

    ones = torch.ones(width, device=device)
    norm = RowNorm(ones, torch.zeros_like(ones), EPSILON)

    def attend(implementation: str) -> Tensor:
        if kernels is not None:
            return run_attention(implementation, Kernels(kernels), qkv, norm, norm).transpose(1, 2)
        if implementation == "torch":
            return functional.scaled_dot_product_attention(query, key, value)
        with sdpa_kernel(SDPA_BACKENDS[implementation]):
            return functional.scaled_dot_product_attention(query, key, value)

    theirs = ("torch", *(SDPA_BACKENDS if device == "cuda" else ()))
    for name in theirs if kernels is None else ("wgmma",):
        about = {"what": f"attention {name}", "of": "attention", "way": name, "a_pair": shape.layers}
        yield about | measure_rate(partial(_attention, partial(attend, name), expected), work, device, sustained_ms)


def measure_rate(make: Callable[[], Prepared], work: float, device: str, sustained_ms: float = SUSTAINED_MS) -> Entry:
    """Times and checks what `make` prepares; an exception becomes an entry."""
    try:
        runs, rows, expected = make()
        error = float((rows().double() - expected).norm() / expected.norm())
        taken = milliseconds(runs, device, sustained_ms)
    except (RuntimeError, AttributeError, ValueError, AnimeGamerError) as failure:
        return {"passed": False, "broken": describe_error(failure)}
    rate = {"ms_p50": round(taken, 4), "tflops": round(work / taken / 1e9, 1)}
    return {**rate, "error": error if math.isfinite(error) else None, "allowed": ALLOWED, "passed": error <= ALLOWED}


def describe_error(failure: Exception) -> str:
    """The traceback of an error with its causes: in a graph capture the last error hides the first.

    Re-raises the error if the GPU was lost, because later results of this process would be invalid. A failed capture or
    full memory does not lose it.
    """
    if isinstance(failure, DeviceLostError):
        raise failure
    if isinstance(failure, torch.AcceleratorError) and getattr(failure, "error_code", None) not in REFUSALS:
        raise failure
    return "".join(traceback.format_exception(failure))[-TOLD_CHARACTERS:]


def milliseconds(runs: Sequence[Run], device: str, sustained_ms: float = 0.0) -> float:
    """Median milliseconds of one run, cycling over the inputs so that no cache holds them.

    On a GPU the runs of a repeat are one CUDA graph, because launches cost the host more than many runs take; they
    repeat for at least sustained_ms.
    """
    if device != "cuda":
        seconds = [_seconds(run) for _ in range(REPEATS) for run in runs]
        return 1000 * median(seconds)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for run in islice(cycle(runs), max(WARM_UP, len(runs))):
            run()
        alone = _between_events(runs[0])
        count = len(runs) * max(1, round(min(MAX_RUNS, GRAPH_MS / max(alone, 1e-3)) / len(runs)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for run in islice(cycle(runs), count):
                run()
        graph.replay()
        return sustained(partial(_between_events, graph.replay), sustained_ms) / count


def sustained(repeat: Callable[[], float], at_least_ms: float) -> float:
    """The median of the last half of enough repeats for at_least_ms in all; repeat: returns its own ms."""
    taken: list[float] = []
    while len(taken) < REPEATS or sum(taken) < at_least_ms:
        taken.append(repeat())
    return median(taken[len(taken) // 2 :])


def _between_events(run: Run) -> float:
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    run()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))


def _seconds(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _attention(run: Callable[[], Tensor], expected: Tensor) -> Prepared:
    return [run], lambda: run()[0, 0, :CHECKED_ROWS], expected


def _products(maker: Maker, inputs: Sequence[Tensor], weight: Tensor) -> Prepared:
    made = [maker(x, weight) for x in inputs]
    first, expected = made[0]
    return [run for run, _ in made], lambda: first()[:CHECKED_ROWS], expected


def plain_product(x: Tensor, weight: Tensor) -> tuple[Callable[[], Tensor], Tensor]:
    """A plain product, and its first rows in float64."""
    return partial(functional.linear, x, weight), x[:CHECKED_ROWS].double() @ weight.double().T


def fp8_product(x: Tensor, weight: Tensor) -> tuple[Callable[[], Tensor], Tensor]:
    """A product with one scale per row of each side and a bias, without the time to quantise."""
    scaled = []
    for matrix in (x, weight):
        scale = matrix.abs().amax(1, keepdim=True).float() / FP8_MAX
        scaled.append(((matrix / scale).to(torch.float8_e4m3fn), scale))
    (left, left_scale), (right, right_scale) = scaled
    bias = weight[:, 0].contiguous()

    def run() -> Tensor:
        return torch._scaled_mm(
            left,
            right.t(),
            scale_a=left_scale,
            scale_b=right_scale.t(),
            bias=bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    rows = left[:CHECKED_ROWS].double() * left_scale[:CHECKED_ROWS].double()
    return run, rows @ (right.double() * right_scale.double()).T + bias.double()


def int8_product(x: Tensor, weight: Tensor) -> tuple[Callable[[], Tensor], Tensor]:
    """An INT8 product to int32 sums, without the time to quantise."""
    left, right = ((matrix / matrix.abs().amax(1, keepdim=True) * INT8_MAX).to(torch.int8) for matrix in (x, weight))
    return lambda: torch._int_mm(left, right.t()), left[:CHECKED_ROWS].double() @ right.double().T
