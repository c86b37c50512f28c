"""Finds the steps of the exact plan that a cheaper plan should take, by dynamic programming.

Steps are numbered as in the exact plan. A coarse step from i to j uses the x0 at i (and the one before it: the solver
is second-order) instead of all predictions of the exact plan in between, so its error follows from the recorded
trajectory. The sum of squared errors, weighted by the signal level, is minimised for every number of network
evaluations at once. No network is run, so error growth is unknown: `emphasis` gives early errors more weight, and
measure.py measures the plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from animegamer_export.support.plans import exact_plan, mean_guidance, plan_from_steps
from animegamer_rt.bundle.denoise_plan import Branch, DenoisePlan
from animegamer_rt.bundle.noise_schedule import even_timesteps, half_log_snr, signal_levels

from .trajectory import Gram

SMALLEST_GAIN = 1e-9
"""Smaller gains in squared error per latent element are not worth an evaluation; a latent's variance is about 1."""

Weights = npt.NDArray[np.float64]
"""Of the recorded predictions, float64 [2n]."""


@dataclass(frozen=True, slots=True)
class _State:
    """The end of a partial plan: its last two steps, as indices of the exact plan's, and whether each is guided."""

    index: int
    guided: bool
    previous: int | None = None
    previous_guided: bool = False


@dataclass(frozen=True, slots=True)
class _LeastError:
    """The least error of a state at a given cost, and its predecessor."""

    error: float
    previous: tuple[_State, int] | None


def best_plans(local: LocalErrors, emphasis: float, most_rows: int) -> dict[int, DenoisePlan]:
    """The best plan of each cost up to `most_rows` network evaluations, without plans that a cheaper one equals.

    local: one object serves every emphasis. emphasis: a squared error at signal level a is weighted by
    a^(-2 emphasis).
    """
    steps = local.steps
    weights = [0.0, *(math.pow(level, -2.0 * emphasis) for level in local.levels[1:])]
    reached: list[dict[_State, dict[int, _LeastError]]] = [{} for _ in range(steps)]
    reached[0] = {_State(0, guided): {1 + guided: _LeastError(0.0, None)} for guided in (False, True)}
    finished: dict[int, tuple[float, _State]] = {}
    for index in range(steps):
        for at, by_rows in reached[index].items():
            if index == steps - 1:
                for rows, best in by_rows.items():
                    total = best.error + local.last_step_error(at)
                    if rows not in finished or total < finished[rows][0]:
                        finished[rows] = (total, at)
                continue
            for end in range(index + 1, steps):
                error = local.step_error(at, end) * weights[end]
                for guided in (False, True):
                    after = reached[end].setdefault(_State(end, guided, index, at.guided), {})
                    for rows, best in by_rows.items():
                        total, cost = best.error + error, rows + 1 + guided
                        if cost <= most_rows and (cost not in after or total < after[cost].error):
                            after[cost] = _LeastError(total, (at, rows))
    found, least = {}, math.inf
    for rows, (error, at) in sorted(finished.items()):
        if error < least - SMALLEST_GAIN:
            found[rows], least = _plan(reached, at, rows, steps), error
    return found


def _plan(reached: list[dict[_State, dict[int, _LeastError]]], last: _State, rows: int, steps: int) -> DenoisePlan:
    """Builds the plan by following the states back from `last`."""
    indices: list[int] = []
    branches: list[Branch] = []
    step: tuple[_State, int] | None = (last, rows)
    while step is not None:
        at, cost = step
        indices.append(at.index)
        branches.append("pair" if at.guided else "conditional")
        step = reached[at.index][at][cost].previous
    return plan_from_steps(indices[::-1], branches[::-1], steps)


class LocalErrors:
    """Squared errors of coarse steps per latent element, from the exact trajectory's inner products.

    gram: from `trajectory_gram`, [2n, 2n] for an exact plan of n steps.
    """

    def __init__(self, gram: Gram) -> None:
        self.gram, self.steps = gram, len(gram) // 2
        self.exact = [step.coefficients for step in exact_plan(self.steps)]
        self.levels = [float(level) for level in signal_levels(even_timesteps(self.steps))]
        self.half_log_snr = [half_log_snr(level) for level in self.levels]
        self.added: dict[tuple[int, int], Weights] = {}
        self.guidance: dict[tuple[int, int], float] = {}
        self._errors: dict[tuple[_State, int], float] = {}
        for start in range(self.steps - 1):
            added = np.zeros(2 * self.steps)
            for end in range(start + 1, self.steps):
                added = self._exact_step(added, end - 1)
                self.added[start, end], self.guidance[start, end] = added, mean_guidance(start, end, self.steps)

    def step_error(self, at: _State, end: int) -> float:
        """The squared error of the step from `at` to `end`."""
        if (at, end) not in self._errors:
            self._errors[at, end] = self._square(self._coarse_step(at, end) - self.added[at.index, end])
        return self._errors[at, end]

    def last_step_error(self, at: _State) -> float:
        """The squared error of the result if the last step is unguided."""
        true = 1.0 + self.exact[at.index].guidance_minus_one
        wrong = self._x0(at.index, true if at.guided else 1.0) - self._x0(at.index, true)
        return self._square(wrong)

    def _square(self, wrong: Weights) -> float:
        return float(wrong @ self.gram @ wrong)

    def _coarse_step(self, at: _State, end: int) -> Weights:
        """What one coarse step adds to the latent: its x0 and the one before, each with its span's mean guidance."""
        snr, order, before = self.half_log_snr, 0.0, np.zeros(2 * self.steps)
        length = snr[end] - snr[at.index]
        if at.previous is not None:
            order = length / (2.0 * (snr[at.index] - snr[at.previous]))
            before = self._mean_guided_x0(at.previous, at.index, at.previous_guided)
        growth = -math.expm1(-2.0 * length) * self.levels[end]
        return growth * ((1.0 + order) * self._mean_guided_x0(at.index, end, at.guided) - order * before)

    def _exact_step(self, added: Weights, index: int) -> Weights:
        """What the exact steps up to and including `index` add to the latent."""
        c = self.exact[index]
        after: Weights = c.c_latent * added + c.c_x0 * self._x0(index, 1.0 + c.guidance_minus_one)
        if index:
            before = self.exact[index - 1].guidance_minus_one
            after = after + c.c_x0_prev * self._x0(index - 1, 1.0 + before)
        return after

    def _mean_guided_x0(self, index: int, end: int, guided: bool) -> Weights:
        return self._x0(index, self.guidance[index, end] if guided else 1.0)

    def _x0(self, index: int, guidance: float) -> Weights:
        """x0 at a step, as weights of the recorded predictions."""
        weights = np.zeros(2 * self.steps)
        weights[index], weights[self.steps + index] = 1.0, guidance - 1.0
        return weights
