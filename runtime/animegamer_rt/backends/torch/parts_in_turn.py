"""Engines of which one is in memory at a time: for a CPU, where a turn takes long and memory is what is short.

A part is opened when it is first used, and the one before it leaves first. It does not know networks.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from animegamer_rt.backends.interface import (
    DenoiserEngine,
    DenoiseRun,
    FloatArray,
    Frames,
    IntArray,
    PredictorEngine,
    Prefill,
    TokenBatch,
    VaeEngine,
)

Part = TypeVar("Part")


class InMemory:
    """The one part that is in memory."""

    def __init__(self) -> None:
        self._opened_by: object = None
        self._part: object = None
        self._lock = threading.Lock()

    def get(self, open_part: Callable[[], Part]) -> Part:
        """The part that this function opens. It is opened unless it is in memory; caches of any other are lost then."""
        with self._lock:
            if self._opened_by is not open_part:
                self._opened_by = self._part = None
                gc.collect()
                self._part, self._opened_by = open_part(), open_part
            return cast(Part, self._part)


@dataclass(frozen=True, slots=True)
class PredictorInTurn:
    """Implements interface.PredictorEngine."""

    memory: InMemory
    open_part: Callable[[], PredictorEngine]

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """See interface.PredictorEngine."""
        found = self.memory.get(self.open_part).prefill(tokens, past)
        return Prefill(found.shot, found.logits, found.cache)  # what else there is would keep the part in memory

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        """See interface.PredictorEngine."""
        return self.memory.get(self.open_part).extend(tokens, cache)


@dataclass(slots=True)
class DenoiserInTurn:
    """Implements interface.DenoiserEngine."""

    memory: InMemory
    open_part: Callable[[], DenoiserEngine]
    skippable_blocks: int

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> DenoiseRun:
        """See interface.DenoiserEngine. A turn's denoising keeps the part until it is dropped."""
        return self.memory.get(self.open_part).start(latent, shot, motion_scope)


@dataclass(frozen=True, slots=True)
class VaeInTurn:
    """Implements interface.VaeEngine."""

    memory: InMemory
    open_part: Callable[[], VaeEngine]

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        """See interface.VaeEngine."""
        return self.memory.get(self.open_part).first(latent, channel_order, flip)

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        """See interface.VaeEngine."""
        return self.memory.get(self.open_part).next(latent, caches, channel_order, flip)
