"""Rates of this GPU on the denoiser's own shapes: products in bfloat16, FP8, INT8, attention by every library of torch.

Used by gpu.py: they say how far a turn is from what the machine can do, and which attention to take. CUDA only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, HIDDEN, HEADS, LAYERS = 2 * 6976, 1920, 30, 30
"""A guided pair at full size. Source: MODEL.md section 4."""
PRODUCTS = {
    "qkv": (HIDDEN, 3 * HIDDEN),
    "output": (HIDDEN, HIDDEN),
    "mlp_in": (HIDDEN, 4 * HIDDEN),
    "mlp_out": (4 * HIDDEN, HIDDEN),
}
REPEATS = 20
FP8_MAX, INT8_MAX = 448.0, 127.0


def rates() -> Iterator[dict[str, Any]]:
    """One entry a shape and library: milliseconds, TFLOP/s, or the error."""
    for name, (inner, outer) in PRODUCTS.items():
        x = torch.randn(TOKENS, inner, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(outer, inner, device="cuda", dtype=torch.bfloat16)
        work = 2.0 * TOKENS * inner * outer
        yield timed(f"{name} bf16", work, partial(functional.linear, x, weight))
        if torch.cuda.get_device_capability() >= (8, 9):
            yield timed(f"{name} fp8 rowwise", work, fp8_product(x, weight))
        yield timed(f"{name} int8 rowwise", work, int8_product(x, weight))
    shape = (2, HEADS, TOKENS // 2, HIDDEN // HEADS)
    query, key, value = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    work = 4.0 * 2 * HEADS * (TOKENS // 2) ** 2 * (HIDDEN // HEADS)
    for library in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):

        def attend(library: SDPBackend = library) -> Tensor:
            with sdpa_kernel(library):
                return functional.scaled_dot_product_attention(query, key, value)

        yield timed(f"attention {library.name.lower()}", work, attend)
    yield timed("attention as torch chooses", work, lambda: functional.scaled_dot_product_attention(query, key, value))


def floor_seconds(measured: Sequence[Mapping[str, Any]], branches: int, precision: str) -> float | None:
    """The denoiser's seconds at full size if it were products and attention alone, at the rates just measured."""
    kind = f"{precision} rowwise" if precision in ("fp8", "int8") else "bf16"
    found = {str(rate["what"]): float(rate["ms_p50"]) for rate in measured if "ms_p50" in rate}
    attention = [value for what, value in found.items() if what.startswith("attention")]
    products = [found[what] for name in PRODUCTS if (what := f"{name} {kind}") in found]
    if not attention or len(products) < len(PRODUCTS):
        return None
    return round(branches / 2 * LAYERS * (sum(products) + min(attention)) / 1000, 4)


def fp8_product(x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """A product with one scale a row of each side; scaling and rounding are not counted."""
    scaled = []
    for matrix in (x, weight):
        scale = matrix.abs().amax(1, keepdim=True).float() / FP8_MAX
        scaled.append(((matrix / scale).to(torch.float8_e4m3fn), scale))
    (left, left_scale), (right, right_scale) = scaled
    return lambda: torch._scaled_mm(
        left, right.t(), scale_a=left_scale, scale_b=right_scale.t(), out_dtype=torch.bfloat16, use_fast_accum=True
    )


def int8_product(x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """A product in INT8 to its int32 sums; scaling and rounding are not counted."""
    left, right = ((matrix / matrix.abs().amax(1, keepdim=True) * INT8_MAX).to(torch.int8) for matrix in (x, weight))
    return lambda: torch._int_mm(left, right.t())


def timed(what: str, work: float, run: Callable[[], Tensor]) -> dict[str, Any]:
    """Median of events around single runs, after a warm-up."""
    try:
        for _ in range(3):
            run()
        milliseconds = []
        for _ in range(REPEATS):
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            run()
            after.record()
            after.synchronize()
            milliseconds.append(before.elapsed_time(after))
    except RuntimeError as error:
        return {"what": what, "error": str(error)[:300]}
    return {
        "what": what,
        "ms_p50": round(median(milliseconds), 4),
        "tflops": round(work / median(milliseconds) / 1e9, 1),
    }
