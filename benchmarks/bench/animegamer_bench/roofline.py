"""The roofline bound of a plan's denoising: counted operations over the machine's matrix product rate.

The rate is measured for a CPU, and the published one for a GPU.
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

from .records import differ

MATMUL_SIDE, MATMUL_SECONDS = 1024, 1.0
"""Seconds of square float32 matrix products; the fastest counts."""
PRODUCTS: Mapping[str, str] = MappingProxyType({"fp8": "fp8", "int8": "int8", "w8a8": "int8"})
"""Denoiser precision -> dtype of its large products. All others multiply in 16 bits."""


@dataclass(frozen=True, slots=True)
class GpuSpecs:
    """Published figures of a GPU: multiprocessors, boost clock in GHz.

    The others are dense tensor-core operations per clock and multiprocessor: fp16 (and bf16) and fp8 accumulate in
    fp32, which GeForce does at half the rate of fp16_sums (accumulating in fp16); int8 accumulates in int32. None: not
    supported.
    """

    name: str
    multiprocessors: int
    boost_ghz: float
    fp16: int
    fp16_sums: int
    fp8: int | None
    int8: int

    def tops(self, kind: str) -> float | None:
        """Peak of `fp16`, `fp8` or `int8` in 1e12 operations per second."""
        each = {"fp16": self.fp16, "fp8": self.fp8, "int8": self.int8}[kind]
        return None if each is None else self._tera(each)

    @property
    def fp16_tops(self) -> float:
        """Peak of fp16 in 1e12 operations per second; every GPU has it."""
        return self._tera(self.fp16)

    def attention_tops(self, scores: str) -> float:
        """Peak of attention in 1e12 operations per second, with scores in `fp16` or `int8`.

        Half of the operations are for scores, half for values. With int8 scores the values use fp16_sums (KERNELS.md).
        """
        if scores != "int8":
            return self.fp16_tops
        return self._tera(2 / (1 / self.int8 + 1 / self.fp16_sums))

    def _tera(self, each: float) -> float:
        """1e12 operations per second, from operations per clock and multiprocessor."""
        return self.multiprocessors * self.boost_ghz * each / 1000


GPU_SPECS: Mapping[str, GpuSpecs] = MappingProxyType(
    {
        "NVIDIA GeForce RTX 3060": GpuSpecs("RTX 3060 12 GB", 28, 1.777, 512, 1024, None, 2048),
        "NVIDIA GeForce RTX 4070": GpuSpecs("RTX 4070", 46, 2.475, 512, 1024, 1024, 2048),
        "NVIDIA GeForce RTX 4090": GpuSpecs("RTX 4090", 128, 2.52, 512, 1024, 1024, 2048),
        "NVIDIA GeForce RTX 5090": GpuSpecs("RTX 5090", 170, 2.407, 512, 1024, 1024, 2048),
        "NVIDIA H100 80GB HBM3": GpuSpecs("H100 SXM", 132, 1.83, 4096, 4096, 8192, 8192),
        "NVIDIA H200": GpuSpecs("H200 SXM", 132, 1.83, 4096, 4096, 8192, 8192),
    }
)
"""By the driver's name of the GPU. Source: published specifications (NVIDIA's architecture papers: Ampere GA102, Ada,
RTX Blackwell, Hopper; the data sheets of H100 and H200, whose peaks of 989 and 1979 tera-operations these give)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second of matrix products and of attention. source: as text."""

    products: float
    attention: float
    source: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """seconds: the bound for one turn's denoising. source: of the rates used."""

    seconds: float
    source: str


def count_operations(bundle: Bundle, part: str = DENOISER) -> tuple[float, float] | None:
    """Products and attention of one evaluation: 24 n D^2 and 4 n^2 D per layer, for n tokens of width D.

    None for a part other than the denoiser, and for a manifest without its sizes.
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
    """The bound of a plan; None if rates or operations are unknown. branches: `DenoisePlan.cost`."""
    needed = count_operations(bundle, part)
    if needed is None or (rates := rates_now()) is None:
        return None
    seconds = branches * (needed[0] / rates.products + needed[1] / rates.attention)
    return Roofline(round(seconds, 4), rates.source)


def gpu_rates(card: str, precision: str, attention: str | None = None) -> Rates | None:
    """A GPU's published peaks. None if unknown, and for float32.

    card: the driver's name for it. attention: as `--attention` (docs/TORCH.md); INT8 variants start with "int8".
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
    """Record fields of the bound before and after the turns, in seconds, and denoising time relative to it.

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
