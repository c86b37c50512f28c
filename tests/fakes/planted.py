"""Engines with a fault planted in one stage: a number that is not finite, or a frame that shows nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from animegamer_rt.backends.interface import Engines
from animegamer_rt.noise import as_array

SHOT, LOGITS, DENOISER, FRAME = "shot", "logits", "latent in a step", "frame"


def plant(engines: Engines, where: str, *, value: float = np.nan, index: int = 0) -> Engines:
    """The same engines, of which one goes wrong in every turn. value: the number; index: the frame that is black."""
    if where == DENOISER:
        return replace(engines, denoiser=_Denoiser(engines.denoiser, value))
    if where == FRAME:
        return replace(engines, vae=_Vae(engines.vae, index))
    return replace(engines, predictor=_Predictor(engines.predictor, where, value))


class _Predictor:
    def __init__(self, engine: Any, where: str, value: float) -> None:
        self._engine, self._where, self._value = engine, where, value

    def prefill(self, *arguments: Any) -> Any:
        prefill = self._engine.prefill(*arguments)
        if self._where == SHOT:
            prefill.shot[-1, -1] = self._value
        return prefill

    def extend(self, *arguments: Any) -> Any:
        logits, cache = self._engine.extend(*arguments)
        if self._where == LOGITS:
            logits = np.where(logits == logits.max(), np.float32(self._value), logits)
        return logits, cache


class _Denoiser:
    """Goes wrong in the turn's second step, in one number of the noise that the step adds."""

    def __init__(self, engine: Any, value: float) -> None:
        self._engine, self._value = engine, value

    def start(self, *arguments: Any) -> Any:
        run = self._engine.start(*arguments)
        step, steps = run.step, 0

        def wrong(coefficients: Any, timestep: float, rows: Any, noise: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == 2:
                noise = as_array(noise).copy()
                noise.flat[5] = self._value
            step(coefficients, timestep, rows, noise)

        run.step = wrong
        return run


class _Vae:
    def __init__(self, engine: Any, index: int) -> None:
        self._engine, self.index = engine, index

    def first(self, *arguments: Any) -> Any:
        frames, caches = self._engine.first(*arguments)
        return self._black(frames, self.index), caches

    def next(self, *arguments: Any) -> Any:
        return self._black(self._engine.next(*arguments), self.index - 9)

    def _black(self, frames: Any, index: int) -> Any:
        if 0 <= index < len(frames):
            frames = frames.copy()
            frames[index, ..., :3] = 0
        return frames
