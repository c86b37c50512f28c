"""GPU memory and speed: which precisions of the full-size parts fit a GPU, and published peak rates of GPUs.

Pure arithmetic, not checked on a GPU: memory besides weights is computed from tensor shapes, as TensorRT allocates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from animegamer_rt.bundle.roles import DENOISER, PREDICTOR, VAE

GIB = 2**30
CARDS_GIB = (8, 12, 16, 24, 32, 80)

FULL_WEIGHTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        PREDICTOR: (6_979_321_856, 300_941_056),
        DENOISER: (1_327_104_000, 373_019_840),
        VAE: (0, 123_368_451),
    }
)
"""Part -> weights of the published model that a quantiser rounds, and that stay in 16 bits (QUANTIZATION.md)."""
WIDENED: Mapping[tuple[str, str], int] = MappingProxyType({(DENOISER, "int8"): 29 * 1920 * 1920})
"""Rounded weights that an int8 TensorRT engine stores in 16 bits all the same: one matrix in each block but the last
(TENSORRT.md)."""
BYTES_A_WEIGHT: Mapping[str, float] = MappingProxyType({"fp16": 2.0, "int8": 1.03, "int4": 0.57})
"""With the scales of blocks of 64. int8 is int8-qdq for TensorRT; fp8 and w8a8 take as much, and widen nothing."""

DRIVER_BYTES = 256 * 2**20
"""The driver's own memory, and the other inputs and outputs of the parts (about 60 MB)."""
SCRATCH_BYTES = 2 * 9 * 256 * 480 * 720 * 2
"""Activations at 720 x 480: input and output of the vae's widest convolution (9 frames of 256 channels, 16 bits), the
largest of all parts. One part runs at a time, so the others need no more."""
VAE_CACHES_BYTES = 1_404_691_200 * 2
"""Caches from the vae's first part to its next one, at 720 x 480 in 16 bits. They add to the scratch, as the next part
uses both."""
MAX_PROMPT_TOKENS = 2 * 5 * (226 + 40) + 24
"""Tokens in the predictor's caches: twice a full history and what follows it (`build-engines`)."""
FULL_PREDICTOR: Mapping[str, int] = MappingProxyType({"layers": 32, "heads": 32, "kv_heads": 8, "hidden": 4096})

PRECISIONS_BY_SIZE = (
    {PREDICTOR: "fp16", DENOISER: "fp16", VAE: "fp16"},
    {PREDICTOR: "int8", DENOISER: "fp16", VAE: "fp16"},
    {PREDICTOR: "int4", DENOISER: "fp16", VAE: "fp16"},
    {PREDICTOR: "int4", DENOISER: "int8", VAE: "fp16"},
)
"""Most accurate first. The predictor is reduced first: it has most of the weights and takes a fiftieth of the time."""


@dataclass(frozen=True, slots=True)
class GpuSpecs:
    """Published figures of a GPU: multiprocessors, boost clock in GHz.

    The others are dense tensor-core operations per clock and multiprocessor: fp16 (and bf16) and fp8 accumulate in
    fp32, which GeForce does at half the rate of fp16_sums (accumulating in fp16); int8 accumulates in int32. None: the
    GPU does not have it.
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
class PrecisionFit:
    """The precisions for a GPU with this much memory, and the bytes of weights to be streamed from host memory."""

    card_gib: int
    precision: Mapping[str, str]
    weights_bytes: int
    streamed_bytes: int


def best_precisions(card_gib: int) -> PrecisionFit:
    """The most accurate precisions whose weights fit the GPU; if none fit, the smallest, partly streamed."""
    available = card_gib * GIB - overhead_bytes(480, 720, FULL_PREDICTOR)
    sizes = [weights_bytes(precision) for precision in PRECISIONS_BY_SIZE]
    best = next((number for number, size in enumerate(sizes) if size <= available), len(PRECISIONS_BY_SIZE) - 1)
    return PrecisionFit(card_gib, PRECISIONS_BY_SIZE[best], sizes[best], max(0, sizes[best] - available))


def overhead_bytes(height: int, width: int, predictor: Mapping[str, int]) -> int:
    """GPU memory besides weights, for frames of this size in pixels and a predictor of these sizes."""
    pictures = (SCRATCH_BYTES + VAE_CACHES_BYTES) * height * width // (480 * 720)
    return DRIVER_BYTES + pictures + prompt_bytes(predictor)


def prompt_bytes(predictor: Mapping[str, int]) -> int:
    """Both of the predictor's caches, keys and values in 16 bits: a call reads one and writes the other."""
    a_token = predictor["layers"] * predictor["kv_heads"] * (predictor["hidden"] // predictor["heads"])
    return 2 * 2 * 2 * a_token * MAX_PROMPT_TOKENS


def weights_bytes(precision: Mapping[str, str]) -> int:
    """Bytes of the published model's weights at these precisions."""
    total = 0.0
    for part, (rounded, kept) in FULL_WEIGHTS.items():
        wide = WIDENED.get((part, precision[part]), 0)
        total += (rounded - wide) * BYTES_A_WEIGHT[precision[part]] + (kept + wide) * BYTES_A_WEIGHT["fp16"]
    return int(total)
