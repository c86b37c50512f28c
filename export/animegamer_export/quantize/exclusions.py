"""Which weights of each part stay at 16 bits.

The evidence is in docs/QUANTIZATION.md. Names are those of `graph.matrices`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from animegamer_rt.bundle.roles import DENOISER, ENCODER, PREDICTOR, VAE

EVERYTHING = r"."
EXCLUDED: Mapping[str, str] = MappingProxyType(
    {
        # Embeddings and the vocabulary's head are read a row at a time; the resamplers are the only way in and out of
        # the shot, and small.
        PREDICTOR: r"embedding|resampler|(^|\.)head\.",
        # adaLN and the two scalar embeddings multiply every token of a block; patches and head touch the latent itself.
        DENOISER: r"modulation|(^|\.)(time|motion|patches|head)\.|unconditional|positions",
        # Convolutions only: 16-bit floats, no blocks.
        VAE: EVERYTHING,
        # Four small matrices, run when a game starts from a picture.
        ENCODER: EVERYTHING,
        "text_tower": r"embedding|relative",
        "image_tower": EVERYTHING,
    }
)


def is_excluded(part: str) -> bool:
    """Whether all weights of the part stay at 16 bits."""
    return EXCLUDED.get(part) == EVERYTHING


def fp16_exclusions(part: str) -> Callable[[str], bool]:
    """For a part ("denoiser", "vae_first", ..), a function that tells whether a weight, by name, stays at 16 bits."""
    for name, pattern in EXCLUDED.items():
        if part == name or part.startswith(name + "_"):
            return lambda weight, found=re.compile(pattern): found.search(weight) is not None  # type: ignore[misc]
    return lambda weight: False
