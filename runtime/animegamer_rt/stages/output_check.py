"""Checks what each stage hands on: numbers must be finite, and a frame must show something.

Half precision can overflow. Infinity then becomes NaN, which spreads over the whole clip, and the conversion to uint8
paints it black: a turn that fails without an error. Knows arrays; nothing of what is done about it.

A frame is refused only if all of its pixels are equal. No brightness is too dark: a night in which one pixel differs
from the others by 1 of 255 is a picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import FloatArray, Frames
from animegamer_rt.errors import UnusableOutputError

SAMPLED = 16
"""Of a frame's rows and columns one in so many is compared first: nearly every picture differs there already."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """The check of one stage: "predictor", "denoiser" or "vae". precision: what its engine computes in, for errors."""

    stage: str
    precision: str = ""

    def numbers(self, what: str, values: FloatArray) -> FloatArray:
        """Returns `values`, float32 of any shape. Raises UnusableOutputError if one is NaN or infinite."""
        finite = np.isfinite(values)
        if not finite.all():
            found = f"{values.size - int(finite.sum())} of {values.size} are NaN or infinite"
            raise self._error(f"the {what} cannot be used", found, "finite numbers")
        return values

    def frames(self, first: int, frames: Frames) -> Frames:
        """Returns `frames`, u8 [n, H, W, C]; `first`: the index of the first of them in its turn.

        Raises UnusableOutputError if all pixels of a frame are equal.
        """
        for index, frame in enumerate(frames, first):
            pixel = frame[0, 0]
            if (frame[::SAMPLED, ::SAMPLED] == pixel).all() and (frame[0] == pixel).all() and (frame == frame[0]).all():
                what, found = f"frame {index} shows nothing", f"{pixel.tolist()} in all of its pixels"
                raise self._error(what, found, "a picture")
        return frames

    def _error(self, what: str, found: str, expected: str) -> UnusableOutputError:
        return UnusableOutputError(what, stage=self.stage, precision=self.precision, found=found, expected=expected)
