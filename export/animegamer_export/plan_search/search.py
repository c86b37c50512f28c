"""The steps of the exact plan that a cheaper one should take: dynamic programming over the path's own pictures.

A coarse step from place i to place j uses the picture at i (and the one before it, as the solver is of second order)
for all that the exact plan saw in between. What it gets wrong is known from the recorded path; the sum of its squares
over the steps, weighted by how much noise is still there, is made least for every number of network rows at once.
It does not run any network, so it cannot know how errors grow: `emphasis` says how much more the early ones count, and
the plans are measured afterwards (measuring.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.coarse_plan import mean_guidance, plan_from_steps
from animegamer_rt.bundle.denoise_plan import Branch, DenoisePlan, exact_plan
from animegamer_rt.bundle.noise_schedule import even_timesteps, half_log_snr, signal_levels

from .trajectory import Gram

SMALLEST_GAIN = 1e-9
"""Less squared error than this, a latent's element, is not worth a row; a latent's variance is about 1."""

Weights = npt.NDArray[np.float64]
"""Of the recorded pictures, float64 [2n]."""

LONGEST_STEP = 16
"""Steps of the exact plan that one coarse step may replace at most."""


@dataclass(frozen=True, slots=True)
class _State:
    """A coarse plan so far: its last place, the one before it, and whether each is guided."""

    place: int
    guided: bool
    before: int | None = None
    before_guided: bool = False


@dataclass(frozen=True, slots=True)
class _Reached:
    """The least error with which a place is reached at a number of rows, and from where."""

    error: float
    came: tuple[_State, int] | None


def best_plans(gram: Gram, emphasis: float, most_rows: int) -> dict[int, DenoisePlan]:
    """The best plan of every cost up to `most_rows`, by network rows; none that a cheaper one equals.

    gram: `trajectory.gram` of an exact plan of half as many steps; emphasis: an error in the latent at signal level a
    counts a^(-2 emphasis) fold.
    """
    steps = len(gram) // 2
    local = _LocalErrors(gram, emphasis)
    reached: list[dict[_State, dict[int, _Reached]]] = [{} for _ in range(steps)]
    reached[0] = {_State(0, guided): {1 + guided: _Reached(0.0, None)} for guided in (False, True)}
    finished: dict[int, tuple[float, _State]] = {}
    for place in range(steps):
        for at, by_rows in reached[place].items():
            if place == steps - 1:
                for rows, best in by_rows.items():
                    total = best.error + local.of_last(at)
                    if rows not in finished or total < finished[rows][0]:
                        finished[rows] = (total, at)
                continue
            for end in range(place + 1, min(steps - 1, place + LONGEST_STEP) + 1):
                error = local.of(at, end)
                for guided in (False, True):
                    after = reached[end].setdefault(_State(end, guided, place, at.guided), {})
                    for rows, best in by_rows.items():
                        total, cost = best.error + error, rows + 1 + guided
                        if cost <= most_rows and (cost not in after or total < after[cost].error):
                            after[cost] = _Reached(total, (at, rows))
    found, least = {}, math.inf
    for rows, (error, at) in sorted(finished.items()):
        if error < least - SMALLEST_GAIN:
            found[rows], least = _plan(reached, at, rows, steps), error
    return found


def _plan(reached: list[dict[_State, dict[int, _Reached]]], last: _State, rows: int, steps: int) -> DenoisePlan:
    """The plan that ends at `last` with so many rows, read backwards."""
    places: list[int] = []
    branches: list[Branch] = []
    step: tuple[_State, int] | None = (last, rows)
    while step is not None:
        at, cost = step
        places.append(at.place)
        branches.append("pair" if at.guided else "conditional")
        step = reached[at.place][at][cost].came
    return plan_from_steps(places[::-1], branches[::-1], steps)


class _LocalErrors:
    """What a coarse step gets wrong, squared, a latent's element, told from the pictures of the exact path alone."""

    def __init__(self, gram: Gram, emphasis: float) -> None:
        self.gram, self.steps = gram, len(gram) // 2
        self.exact = [step.coefficients for step in exact_plan(self.steps)]
        self.levels = [float(level) for level in signal_levels(even_timesteps(self.steps))]
        self.half_log_snr = [half_log_snr(level) for level in self.levels]
        self.weights = [0.0, *(math.pow(level, -2.0 * emphasis) for level in self.levels[1:])]
        self.added: dict[tuple[int, int], Weights] = {}
        self.guidance: dict[tuple[int, int], float] = {}
        for start in range(self.steps - 1):
            added = np.zeros(2 * self.steps)
            for end in range(start + 1, min(self.steps, start + LONGEST_STEP + 1)):
                added = self._exact_step(added, end - 1)
                self.added[start, end], self.guidance[start, end] = added, mean_guidance(start, end, self.steps)

    def of(self, at: _State, end: int) -> float:
        """Of the step from `at` to the place `end`, weighted."""
        wrong = self._coarse_step(at, end) - self.added[at.place, end]
        return self._square(wrong) * self.weights[end]

    def of_last(self, at: _State) -> float:
        """Of leaving the last picture, which is the result, unguided."""
        true = 1.0 + self.exact[at.place].guidance_minus_one
        wrong = self._picture(at.place, true if at.guided else 1.0) - self._picture(at.place, true)
        return self._square(wrong)

    def _square(self, wrong: Weights) -> float:
        return float(wrong @ self.gram @ wrong)

    def _coarse_step(self, at: _State, end: int) -> Weights:
        """What one step adds to the latent: its picture and the one before, each guided as its span's mean."""
        snr, order, before = self.half_log_snr, 0.0, np.zeros(2 * self.steps)
        length = snr[end] - snr[at.place]
        if at.before is not None:
            order = length / (2.0 * (snr[at.place] - snr[at.before]))
            before = self._spanning(at.before, at.place, at.before_guided)
        growth = -math.expm1(-2.0 * length) * self.levels[end]
        return growth * ((1.0 + order) * self._spanning(at.place, end, at.guided) - order * before)

    def _exact_step(self, added: Weights, place: int) -> Weights:
        """What the exact steps up to `place` have added, and this one."""
        c = self.exact[place]
        after: Weights = c.c_latent * added + c.c_x0 * self._picture(place, 1.0 + c.guidance_minus_one)
        if place:
            before = self.exact[place - 1].guidance_minus_one
            after = after + c.c_x0_prev * self._picture(place - 1, 1.0 + before)
        return after

    def _spanning(self, place: int, end: int, guided: bool) -> Weights:
        return self._picture(place, self.guidance[place, end] if guided else 1.0)

    def _picture(self, place: int, guidance: float) -> Weights:
        """x0 at a place, as weights of the recorded pictures."""
        weights = np.zeros(2 * self.steps)
        weights[place], weights[self.steps + place] = 1.0, guidance - 1.0
        return weights
