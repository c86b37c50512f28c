"""Shot + motion scope -> latent, by a denoise plan.

Says which noise each step gets; solver and guidance are inside the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import DenoiserEngine, FloatArray, OutputCheck
from animegamer_rt.bundle.denoise_plan import DenoisePlan, noise_weights
from animegamer_rt.bundle.roles import DENOISER
from animegamer_rt.noise import VERSION, AnyNoise, draw_turn


@dataclass(frozen=True, slots=True)
class DenoiseProgress:
    """After step `step` of `steps`. `seconds`: time in the engine so far. The latent comes with the last step."""

    step: int
    steps: int
    seconds: float
    last_latent: FloatArray | None

    @property
    def latent(self) -> FloatArray:
        """The finished latent, f32 [1, 5, 16, h, w]."""
        assert self.last_latent is not None, "the latent comes with the last step"
        return self.last_latent

    @property
    def seconds_left(self) -> float:
        """Estimated from the mean step so far."""
        return self.seconds / self.step * (self.steps - self.step)


class Denoiser:
    """One bundle's denoiser and one plan.

    precision: the engine's, for errors.
    """

    def __init__(
        self,
        engine: DenoiserEngine,
        plan: DenoisePlan,
        latent_shape: tuple[int, ...],
        precision: str = "",
    ) -> None:
        self._engine = engine
        self._steps = [
            (coefficients, float(step.timestep), step.rows)
            for coefficients, step in zip(plan.coefficients(), plan, strict=True)
        ]
        # The last step adds no noise: the sum of no draws.
        self._noise_weights = [*noise_weights(plan), np.zeros(0, np.float32)]
        self._latent_shape = latent_shape
        self._check = OutputCheck(DENOISER, precision)

    def with_plan(self, plan: DenoisePlan) -> Denoiser:
        """The same engine with another plan."""
        return Denoiser(self._engine, plan, self._latent_shape, self._check.precision)

    def denoise(self, shot: FloatArray, motion_scope: float, noise: Iterator[AnyNoise]) -> Iterator[DenoiseProgress]:
        """Denoises one clip and yields after every step.

        shot: f32 [226, D]. noise: from `draw_noise`. To stop the turn, stop iterating: nothing runs between two steps.
        NaN or infinity of any step stay in the latent, so it is checked once, after the last step: raises
        UnusableOutputError before that step is reported.
        """
        started = time.perf_counter()
        run = self._engine.start(next(noise), shot, motion_scope)
        seconds, last = time.perf_counter() - started, len(self._steps)
        for number, (coefficients, timestep, rows) in enumerate(self._steps, start=1):
            started = time.perf_counter()
            run.step(coefficients, timestep, rows, next(noise))
            latent = self._check.numbers("latent", run.latent()) if number == last else None
            seconds += time.perf_counter() - started
            yield DenoiseProgress(number, last, seconds, latent)

    def draw_noise(self, seed: int, turn: int, version: int = VERSION) -> Iterator[AnyNoise]:
        """The initial latent, then each step's noise; depends on seed, turn, version and plan only."""
        return draw_turn(seed, turn, self._noise_weights, self._latent_shape, version)
