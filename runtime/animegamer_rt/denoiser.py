"""Shot + motion scope -> latent, by a denoise plan.

Knows plans, noise and the denoiser part; does no arithmetic on tensors: solver and guidance are inside the part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .backends.contract import DenoiserPart, FloatArray
from .errors import PlanError
from .schedule import DenoisePlan


@dataclass(frozen=True, slots=True)
class Denoised:
    """After step `step` of `steps`: seconds spent in the engine so far; the latent only after the last."""

    step: int
    steps: int
    seconds: float
    last_latent: FloatArray | None

    @property
    def latent(self) -> FloatArray:
        """The finished latent, f32 [1, 5, 16, h, w]."""
        assert self.last_latent is not None, "asked for the latent before the last step"
        return self.last_latent

    @property
    def seconds_left(self) -> float:
        """Estimated from the mean step so far."""
        return self.seconds / self.step * (self.steps - self.step)


class Denoiser:
    """One bundle's denoiser and one plan."""

    def __init__(self, part: DenoiserPart, plan: DenoisePlan, latent_shape: tuple[int, ...]) -> None:
        if any(step.skip_blocks for step in plan):
            raise PlanError("the plan skips blocks, and this runtime's denoiser cannot", do="use another plan")
        self._part = part
        self._plan = plan
        self._latent_shape = latent_shape

    def denoise(self, shot: FloatArray, motion_scope: float, noise: FloatArray) -> Iterator[Denoised]:
        """Yields after every step; noise f32 [steps, 1, 5, 16, h, w] is `draw_noise`'s, its first the start.

        Stop iterating to stop the turn: nothing runs between two steps.
        """
        started = time.perf_counter()
        turn = self._part.begin(noise[0], shot, motion_scope)
        seconds, last = time.perf_counter() - started, len(self._plan)
        for number, (step, coefficients) in enumerate(zip(self._plan, self._plan.coefficients(), strict=True), start=1):
            started = time.perf_counter()
            # The last step draws no noise; its coefficient is zero, so any finite tensor will do.
            turn.step(coefficients, float(step.timestep), step.rows, noise[number % last])
            latent = turn.latent() if number == last else None
            seconds += time.perf_counter() - started
            yield Denoised(number, last, seconds, latent)

    def draw_noise(self, seed: int, turn: int) -> FloatArray:
        """All noise of one turn, from the game's seed and the turn's number alone; the start first."""
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, turn])))
        return generator.standard_normal((len(self._plan), *self._latent_shape), dtype=np.float32)
