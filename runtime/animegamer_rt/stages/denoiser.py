"""Shot + motion scope -> latent, by a denoise plan.

Draws and sums noise; solver and guidance are inside the engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import DenoiserEngine, FloatArray, OutputCheck
from animegamer_rt.bundle.denoise_plan import DenoisePlan, noise_weights
from animegamer_rt.bundle.roles import DENOISER
from animegamer_rt.errors import PlanError


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
    """One bundle's denoiser and one plan. Raises PlanError for a plan that this runtime cannot play.

    precision: the engine's, for errors.
    """

    def __init__(
        self,
        engine: DenoiserEngine,
        plan: DenoisePlan,
        latent_shape: tuple[int, ...],
        precision: str = "",
    ) -> None:
        _check_blocks(engine, plan)
        self._engine = engine
        self._steps = [
            (coefficients, float(step.timestep), step.rows, step.blocks)
            for coefficients, step in zip(plan.coefficients(), plan, strict=True)
        ]
        self._noise_weights = noise_weights(plan)
        self._latent_shape = latent_shape
        self._check = OutputCheck(DENOISER, precision)

    def with_plan(self, plan: DenoisePlan) -> Denoiser:
        """The same engine with another plan. Raises PlanError as above."""
        return Denoiser(self._engine, plan, self._latent_shape, self._check.precision)

    def denoise(self, shot: FloatArray, motion_scope: float, noise: Iterator[FloatArray]) -> Iterator[DenoiseProgress]:
        """Denoises one clip and yields after every step.

        shot: f32 [226, D]. noise: from `draw_noise`; its first array is the initial latent. To stop the turn, stop
        iterating: nothing runs between two steps. NaN or infinity of any step stay in the latent, so it is checked
        once, after the last step: raises UnusableOutputError before that step is reported.
        """
        started = time.perf_counter()
        drawn = next(noise)
        run = self._engine.start(drawn, shot, motion_scope)
        seconds, last = time.perf_counter() - started, len(self._steps)
        for number, (coefficients, timestep, rows, blocks) in enumerate(self._steps, start=1):
            started = time.perf_counter()
            # The last step's noise has coefficient zero, so any array serves.
            drawn = next(noise) if number < last else drawn
            run.step(coefficients, timestep, rows, drawn, blocks)
            latent = self._check.numbers("latent", run.latent()) if number == last else None
            seconds += time.perf_counter() - started
            yield DenoiseProgress(number, last, seconds, latent)

    def draw_noise(self, seed: int, turn: int) -> Iterator[FloatArray]:
        """The initial latent, then each step's noise, f32 [1, 5, 16, h, w]; depends only on seed, turn and plan.

        Another thread starts drawing now: at full size, all of it takes as long as a few steps on a fast GPU.
        """
        return _draw_in_background(self._draw_noise(seed, turn), len(self._steps))

    def _draw_noise(self, seed: int, turn: int) -> Iterator[FloatArray]:
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, turn])))

        def draw() -> FloatArray:
            return generator.standard_normal(self._latent_shape, np.float32)

        yield draw()
        for of_step in self._noise_weights:
            noise = np.zeros(self._latent_shape, np.float32)
            for weight in of_step:
                noise += weight * draw()
            yield noise


def _check_blocks(engine: DenoiserEngine, plan: DenoisePlan) -> None:
    last = max((step.blocks.last for step in plan if step.blocks is not None), default=-1)
    if last < engine.skippable_blocks:
        return
    if not engine.skippable_blocks:
        raise PlanError(
            "the plan skips blocks, which these engines do not support",
            do="use another plan, or PyTorch: --device torch or torch-cpu",
        )
    expected = f"0 to {engine.skippable_blocks - 1}"
    raise PlanError("the plan skips blocks that the network does not have", found=f"block {last}", expected=expected)


def _draw_in_background(noise: Iterator[FloatArray], count: int) -> Iterator[FloatArray]:
    """The same arrays; another thread starts computing them now."""
    pool = ThreadPoolExecutor(1, "noise")
    drawn = deque(pool.submit(next, noise) for _ in range(count))
    pool.shutdown(wait=False)  # the thread ends after the last of them
    return _results(drawn)


def _results(drawn: deque[Future[FloatArray]]) -> Iterator[FloatArray]:
    try:
        while drawn:
            yield drawn.popleft().result()
    finally:  # the turn stopped early
        for one in drawn:
            one.cancel()
