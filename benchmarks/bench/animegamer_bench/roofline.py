"""The roofline bound of a plan's denoising: counted operations over the rate of the machine's matrix products.

Knows the sizes of a denoiser, and rates: measured here for a CPU, published for a GPU. Knows nothing of how it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DENOISER, NETWORKS
from animegamer_rt.profiling.gpu_specs import GPU_SPECS

from .records import differ

MATMUL_SIDE, MATMUL_SECONDS = 1024, 1.0
"""Square float32 matrices are multiplied for so long; the fastest product counts."""
PRODUCTS: Mapping[str, str] = MappingProxyType({"fp8": "fp8", "int8": "int8", "w8a8": "int8"})
"""Precision of the denoiser -> type of its large products. Every other precision multiplies in 16 bits."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second, of the products of matrices and of attention. source: where they are from, as text."""

    products: float
    attention: float
    source: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """seconds: the bound for one turn's denoising. source: of the rates that it was computed with."""

    seconds: float
    source: str


def count_operations(bundle: Bundle, part: str = DENOISER) -> tuple[float, float] | None:
    """Products and attention of one evaluation: 24 n D^2 and 4 n^2 D per layer, for n tokens of width D.

    part: the denoiser. None for another kind of network, and for a bundle whose manifest has no sizes of it.
    """
    size, geometry = bundle.sizes(DENOISER, part), bundle.manifest.geometry
    if bundle.network(DENOISER, part) != NETWORKS[DENOISER] or not {"hidden", "layers"} <= set(size):
        return None
    patch, width, layers = int(size.get("patch", 2)), int(size["hidden"]), int(size["layers"])
    patches = geometry.latent_frames * (geometry.latent_height // patch) * (geometry.latent_width // patch)
    tokens = geometry.shot_tokens + patches
    return layers * 24.0 * tokens * width**2, layers * 4.0 * tokens**2 * width


def roofline(
    bundle: Bundle, branches: float, rates_now: Callable[[], Rates | None], part: str = DENOISER
) -> Roofline | None:
    """The bound of a plan; None where the rates, or the operations, are not known. branches: `DenoisePlan.cost`."""
    needed = count_operations(bundle, part)
    if needed is None or (rates := rates_now()) is None:
        return None
    seconds = branches * (needed[0] / rates.products + needed[1] / rates.attention)
    return Roofline(round(seconds, 4), rates.source)


def gpu_rates(card: str, precision: str, attention: str | None = None) -> Rates | None:
    """The published peaks of a GPU. None if they are not known, and for float32.

    card: the name that its driver gives. attention: as `--attention` (docs/TORCH.md); INT8 variants begin with "int8".
    """
    specs, kind = GPU_SPECS.get(card), PRODUCTS.get(precision, "fp16")
    if specs is None or precision == "fp32" or (peak := specs.tops(kind)) is None:
        return None
    scores = "int8" if (attention or "").startswith("int8") else "fp16"
    source = f"published peak of {specs.name}, products in {kind}, attention in {scores}"
    return Rates(peak * 1e12, specs.attention_tops(scores) * 1e12, source)


def cpu_rates() -> Rates:
    """This machine's rate of float32 matrix products, measured now."""
    left = np.random.default_rng(0).standard_normal((MATMUL_SIDE, MATMUL_SIDE), np.float32)
    began, fastest = time.perf_counter(), float("inf")
    while (start := time.perf_counter()) - began < MATMUL_SECONDS:
        left @ left
        fastest = min(fastest, time.perf_counter() - start)
    rate = 2.0 * MATMUL_SIDE**3 / fastest
    return Rates(rate, rate, "this processor's float32 matrix rate, measured")


def floor_fields(bounds: Sequence[Roofline | None], denoiser: float) -> dict[str, Any]:
    """Record fields of the bound before and after the turns, and of what denoising took over it, in seconds.

    If the two differ by a tenth, both are void; otherwise the smaller one counts.
    """
    first, last = bounds
    floor, source = None, first.source if first else None
    if first is not None and last is not None:
        if differ(first.seconds, last.seconds):
            source = f"void, it changed by a tenth or more: {source}"
        else:
            floor = min(first.seconds, last.seconds)
    return {
        "denoiser_floor_before_seconds": first.seconds if first else None,
        "denoiser_floor_after_seconds": last.seconds if last else None,
        "denoiser_floor_seconds": floor,
        "floor_source": source,
        "ratio_to_floor": None if floor is None else round(denoiser / floor, 3),
    }
