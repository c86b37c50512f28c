"""Which precision of each part fits on which card: arithmetic on numbers of weights.

It opens nothing and has not been held against a card: what a part needs besides its weights is a bound from shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GIB = 2**30
CARDS_GIB = (8, 12, 16, 24, 32, 80)

FULL_WEIGHTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "predictor": (6_979_321_856, 300_941_056),
        "denoiser": (1_327_104_000, 373_019_840),
        "vae": (0, 123_368_451),
    }
)
"""Weights of the published model: those that a quantiser rounds, and those that stay at 16 bits (QUANTIZATION.md)."""
BYTES_A_WEIGHT: Mapping[str, float] = MappingProxyType({"fp16": 2.0, "int8": 1.03, "int4": 0.57})
"""With the scales of blocks of 64; fp8 and w8a8 take what int8 takes."""

ROOM_BYTES = 2 * 9 * 256 * 480 * 720 * 2 + 256 * 2**20
"""Besides weights, at 480 x 720: input and output of the vae's widest convolution (9 frames of 256 channels, 16 bit),
the largest of all activations, and a driver's own 256 MiB. One part runs at a time, so the others need no more."""

LADDER = (
    {"predictor": "fp16", "denoiser": "fp16", "vae": "fp16"},
    {"predictor": "int8", "denoiser": "fp16", "vae": "fp16"},
    {"predictor": "int4", "denoiser": "fp16", "vae": "fp16"},
    {"predictor": "int4", "denoiser": "int8", "vae": "fp16"},
)
"""From the most faithful down. The predictor first: it is most of the weights and a fiftieth of the time."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What a card of that memory holds, and the bytes of weights that have to be streamed from host memory."""

    card_gib: int
    precision: Mapping[str, str]
    weights_bytes: int
    streamed_bytes: int


def fits(card_gib: int) -> Fit:
    """The most faithful precisions whose weights lie on the card at once; the smallest, streamed, where none do."""
    room = card_gib * GIB - ROOM_BYTES
    sizes = [weights_bytes(precision) for precision in LADDER]
    best = next((number for number, size in enumerate(sizes) if size <= room), len(LADDER) - 1)
    return Fit(card_gib, LADDER[best], sizes[best], max(0, sizes[best] - room))


def weights_bytes(precision: Mapping[str, str]) -> int:
    """Bytes of the published model's weights at these precisions."""
    return sum(
        int(rounded * BYTES_A_WEIGHT[precision[part]] + kept * BYTES_A_WEIGHT["fp16"])
        for part, (rounded, kept) in FULL_WEIGHTS.items()
    )
