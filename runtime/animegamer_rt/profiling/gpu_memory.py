"""GPU memory: which precisions of the full-size parts fit a GPU.

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
"""Part -> weights of the published model that are quantised, and that stay in 16 bits (QUANTIZATION.md)."""
WIDENED: Mapping[tuple[str, str], int] = MappingProxyType({(DENOISER, "int8"): 29 * 1920 * 1920})
"""Quantised weights that an int8 TensorRT engine nonetheless stores in 16 bits: one matrix in each block but the last
(TENSORRT.md)."""
BYTES_A_WEIGHT: Mapping[str, float] = MappingProxyType({"fp16": 2.0, "int8": 1.03, "int4": 0.57})
"""Including scales for blocks of 64. int8 is int8-qdq for TensorRT; fp8 and w8a8 take as much, without widening."""

DRIVER_BYTES = 256 * 2**20
"""The driver's own memory, and the parts' other inputs and outputs (about 60 MB)."""
SCRATCH_BYTES = 2 * 9 * 256 * 480 * 720 * 2
"""Activations at 720 x 480: input and output of the vae's widest convolution (9 frames of 256 channels, 16 bits), the
largest of all parts. One part runs at a time, so the others need no more."""
VAE_CACHES_BYTES = 1_404_691_200 * 2
"""Caches between the vae's chunks, at 720 x 480 in 16 bits. They add to the scratch, as the second chunk uses both."""
MAX_PROMPT_TOKENS = 2 * 5 * (226 + 40) + 24
"""Tokens in the predictor's caches: twice a full history plus the rest of a prompt (`build-engines`)."""
FULL_PREDICTOR: Mapping[str, int] = MappingProxyType({"layers": 32, "heads": 32, "kv_heads": 8, "hidden": 4096})

PRECISIONS_BY_SIZE = (
    {PREDICTOR: "fp16", DENOISER: "fp16", VAE: "fp16"},
    {PREDICTOR: "int8", DENOISER: "fp16", VAE: "fp16"},
    {PREDICTOR: "int4", DENOISER: "fp16", VAE: "fp16"},
    {PREDICTOR: "int4", DENOISER: "int8", VAE: "fp16"},
)
"""Most accurate first. The predictor is reduced first: it has most of the weights and a fiftieth of the time."""


@dataclass(frozen=True, slots=True)
class PrecisionFit:
    """The precisions for a GPU with this much memory, and the bytes of weights streamed from host memory."""

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
