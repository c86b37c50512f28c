"""The least time that a plan's denoising can take on a machine: counted work over the rate of its products.

Knows sizes of a denoiser and rates, measured here for a processor and published for a card; nothing of how it is run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.profiling.gpu_specs import GPU_SPECS

MATMUL_SIDE = 1024
PRODUCTS: Mapping[str, str] = MappingProxyType({"fp8": "fp8", "int8": "int8", "w8a8": "int8"})
"""What the denoiser runs in -> the type of its large products; of every other precision they are 16-bit."""


@dataclass(frozen=True, slots=True)
class OpCount:
    """Operations of one branch of one step: its matrices' products, and attention's."""

    products: float
    attention: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """Seconds of a plan's branches (`DenoisePlan.cost`), and in words whose rate they were divided by."""

    seconds: float
    source: str


def work(bundle: Bundle) -> OpCount | None:
    """None for a bundle that does not say the sizes of its denoiser.

    A layer has 24 n D^2 and 4 n^2 D operations (n tokens of width D).
    """
    size, geometry = bundle.manifest.sizes.get("denoiser"), bundle.manifest.geometry
    if not isinstance(size, Mapping) or not {"hidden", "layers"} <= set(size):
        return None
    patch = int(size.get("patch", 2))
    patches = geometry.latent_frames * (geometry.latent_height // patch) * (geometry.latent_width // patch)
    tokens, width = geometry.shot_tokens + patches, int(size["hidden"])
    layers = int(size["layers"])
    return OpCount(layers * 24.0 * tokens * width**2, layers * 4.0 * tokens**2 * width)


def cpu_roofline(bundle: Bundle, branches: float) -> Roofline | None:
    """At this machine's float32 matrix rate, measured now."""
    needed = work(bundle)
    if needed is None:
        return None
    seconds = branches * (needed.products + needed.attention) / _matmul_rate()
    return Roofline(round(seconds, 4), "this processor's float32 matrix rate, measured")


def gpu_roofline(
    bundle: Bundle, branches: float, card: str, precision: str, attention: str | None = None
) -> Roofline | None:
    """At the published peak of a card by its driver's name; None for one whose rates are not known, and for float32.

    attention: of the ways of TORCH.md, those in INT8 begin with it.
    """
    needed, rates = work(bundle), GPU_SPECS.get(card)
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
    left = np.ones((MATMUL_SIDE, MATMUL_SIDE), np.float32)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        left @ left
        seconds.append(time.perf_counter() - start)
    return 2.0 * MATMUL_SIDE**3 / min(seconds)
