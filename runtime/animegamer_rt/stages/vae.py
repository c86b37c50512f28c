"""Latent -> uint8 frames, a chunk of time at a time.

Knows the vae part and pixel formats; nothing of what made the latent. While a caller shows the first nine frames, the
other eight are decoded on a thread of their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from animegamer_rt.backends.interface import PIXEL_FORMATS, FloatArray, Frames, VaeEngine
from animegamer_rt.bundle.config import check_choice

FIRST_LATENT_FRAMES = 3
"""The first chunk takes latent frames 0..2 and gives 9 frames; the second takes the rest (MODEL.md section 6)."""


class Vae:
    """One bundle's decoder. `seconds` is the time the last clip took inside the engine."""

    def __init__(self, part: VaeEngine) -> None:
        self._part = part
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vae")
        self.seconds = 0.0

    def decode(self, latent: FloatArray, pixel_format: str = "rgb24", flip: bool = False) -> Iterator[Frames]:
        """Yields single frames u8 [H, W, C] in order; latent f32 [1, 5, 16, h, w]; flip = bottom row first.

        A frame stays valid for as long as it is held. Raises ConfigError for an unknown pixel format.
        """
        order = PIXEL_FORMATS[check_choice(pixel_format, tuple(PIXEL_FORMATS), "pixel_format")]
        chunks = np.ascontiguousarray(latent[:, :FIRST_LATENT_FRAMES]), latent[:, FIRST_LATENT_FRAMES:]
        started = time.perf_counter()
        frames, caches = self._part.first(chunks[0], order, flip)
        first_seconds = time.perf_counter() - started
        rest = self._thread.submit(self._decode_rest, np.ascontiguousarray(chunks[1]), caches, order, flip)
        try:
            yield from frames
        finally:
            wait([rest])  # also when the caller stops early: the engine is free again once this returns
        frames, rest_seconds = rest.result()
        self.seconds = first_seconds + rest_seconds
        yield from frames

    def _decode_rest(
        self, latent: FloatArray, caches: object, order: tuple[int, ...], flip: bool
    ) -> tuple[Frames, float]:
        started = time.perf_counter()
        frames = self._part.next(latent, caches, order, flip)
        return frames, time.perf_counter() - started
