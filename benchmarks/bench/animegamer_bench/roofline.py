"""The roofline bound of a plan's denoising: counted operations over the rate of the machine's matrix products.

Knows the sizes of a denoiser, and rates: measured here for a CPU, published for a GPU. Knows nothing of how it runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DENOISER, NETWORKS
from animegamer_rt.profiling.gpu_specs import GPU_SPECS

MATMUL_SIDE, MATMUL_SECONDS = 1024, 1.0
"""Square float32 matrices are multiplied for so long; the fastest product counts."""
PRODUCTS: Mapping[str, str] = MappingProxyType({"fp8": "fp8", "int8": "int8", "w8a8": "int8"})
"""Precision of the denoiser -> type of its large products. Every other precision multiplies in 16 bits."""


@dataclass(frozen=True, slots=True)
class OpCount:
    """Operations of one network evaluation: the products of its matrices, and attention's."""

    products: float
    attention: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """seconds: the bound for one turn's denoising. source: the rate that it was computed with, as text."""

    seconds: float
    source: str


def count_operations(bundle: Bundle, part: str = DENOISER) -> OpCount | None:
    """Operations of one evaluation: 24 n D^2 + 4 n^2 D per layer, for n tokens of width D.

    part: the denoiser. None for another kind of network, and for a bundle whose manifest has no sizes of it.
    """
    size, geometry = bundle.sizes(DENOISER, part), bundle.manifest.geometry
    if bundle.network(DENOISER, part) != NETWORKS[DENOISER] or not {"hidden", "layers"} <= set(size):
        return None
    patch = int(size.get("patch", 2))
    patches = geometry.latent_frames * (geometry.latent_height // patch) * (geometry.latent_width // patch)
    tokens, width = geometry.shot_tokens + patches, int(size["hidden"])
    layers = int(size["layers"])
    return OpCount(layers * 24.0 * tokens * width**2, layers * 4.0 * tokens**2 * width)


def cpu_roofline(bundle: Bundle, branches: float, part: str = DENOISER) -> Roofline | None:
    """The bound at this machine's float32 matrix rate, measured now. branches: `DenoisePlan.cost`."""
    needed = count_operations(bundle, part)
    if needed is None:
        return None
    seconds = branches * (needed.products + needed.attention) / _matmul_rate()
    return Roofline(round(seconds, 4), "this processor's float32 matrix rate, measured")


def gpu_roofline(
    bundle: Bundle, branches: float, card: str, precision: str, attention: str | None = None, part: str = DENOISER
) -> Roofline | None:
    """The bound at the published peak of a GPU. None if its rates are not known, and for float32.

    card: the name that its driver gives. attention: as `--attention` (docs/TORCH.md); INT8 variants begin with "int8".
    """
    needed, rates = count_operations(bundle, part), GPU_SPECS.get(card)
    if needed is None or rates is None or precision == "fp32":
        return None
    kind = PRODUCTS.get(precision, "fp16")
    peak = rates.tops(kind)
    if peak is None:
        return None
    scores = "int8" if (attention or "").startswith("int8") else "fp16"
    seconds = branches * (needed.products / peak + needed.attention / rates.attention_tops(scores)) / 1e12
    return Roofline(round(seconds, 4), f"published peak of {rates.name}, products in {kind}, attention in {scores}")


def _matmul_rate() -> float:
    left = np.random.default_rng(0).standard_normal((MATMUL_SIDE, MATMUL_SIDE), np.float32)
    began, fastest = time.perf_counter(), float("inf")
    while (start := time.perf_counter()) - began < MATMUL_SECONDS:
        left @ left
        fastest = min(fastest, time.perf_counter() - start)
    return 2.0 * MATMUL_SIDE**3 / fastest
