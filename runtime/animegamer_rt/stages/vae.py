"""Latent -> uint8 frames, in chunks of time.

While a caller shows the first nine frames, the other eight are decoded in another thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from animegamer_rt.backends.interface import PIXEL_FORMATS, FloatArray, Frames, OutputCheck, VaeEngine
from animegamer_rt.bundle.roles import VAE
from animegamer_rt.errors import ConfigError

FIRST_LATENT_FRAMES = 3
"""The first chunk takes latent frames 0..2 and gives 9 frames; the second takes the rest (MODEL.md section 6)."""


class Vae:
    """One bundle's video decoder; `precision`: the engine's, for errors. It decodes one clip at a time."""

    def __init__(self, engine: VaeEngine, precision: str = "") -> None:
        self._engine = engine
        self._check = OutputCheck(VAE, precision)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vae")

    def decode(self, latent: FloatArray, pixel_format: str = "rgb24", flip: bool = False) -> Decoding:
        """The frames of a latent f32 [1, 5, 16, h, w]: iterate once, each is u8 [H, W, C]; flip = bottom row first.

        A frame stays valid for as long as it is referenced. Raises ConfigError for an unknown pixel format; the
        iteration raises UnusableOutputError before yielding any frame of a chunk with an empty frame.
        """
        if pixel_format not in PIXEL_FORMATS:
            found, expected = repr(pixel_format), ", ".join(PIXEL_FORMATS)
            raise ConfigError("unknown pixel format", where="pixel_format", found=found, expected=expected)
        return Decoding(self._engine, self._check, self._thread, latent, PIXEL_FORMATS[pixel_format], flip)


class Decoding:
    """One clip being decoded. `seconds`: time inside the engine, known after the last frame."""

    def __init__(
        self,
        engine: VaeEngine,
        check: OutputCheck,
        thread: ThreadPoolExecutor,
        latent: FloatArray,
        channel_order: tuple[int, ...],
        flip: bool,
    ) -> None:
        self._engine, self._check, self._thread, self._latent = engine, check, thread, latent
        self._channel_order, self._flip = channel_order, flip
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Frames]:
        latent, rest = self._latent[:, :FIRST_LATENT_FRAMES], self._latent[:, FIRST_LATENT_FRAMES:]
        started = time.perf_counter()
        frames, caches = self._engine.first(np.ascontiguousarray(latent), self._channel_order, self._flip)
        self.seconds, shown = time.perf_counter() - started, len(frames)
        second_chunk = self._thread.submit(self._decode_rest, np.ascontiguousarray(rest), caches)
        try:
            yield from self._check.frames(0, frames)
        finally:
            wait([second_chunk])  # even if the caller stops early: the engine is free again once this returns
        frames, seconds = second_chunk.result()
        self.seconds += seconds
        yield from self._check.frames(shown, frames)

    def _decode_rest(self, latent: FloatArray, caches: object) -> tuple[Frames, float]:
        started = time.perf_counter()
        frames = self._engine.next(latent, caches, self._channel_order, self._flip)
        return frames, time.perf_counter() - started
