"""Plans with fewer steps that draw the same clip: a coarse step combines guidance and noise of the fine steps it spans.

SDE-DPM++ injects noise along lambda, so the noise of a long step is a weighted sum of the noises of the short steps it
reindices, and its guidance their weighted mean. The coarse plan then draws the fine plan's clip, less sharply, and not
another clip. Knows the schedule; not the network, nor where the noise is drawn. NumPy only.
Source of the solver: MODEL.md section 5; the sums follow from it by writing its steps out one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from animegamer_rt.errors import PlanError

from .denoise_plan import Branch, DenoisePlan, build_plan, choose_branches
from .noise_schedule import even_timesteps, half_log_snr, signal_levels, wave_guidance

FINE_STEPS = 50


def coarse_plan(steps: int, *, conditional_below: float = 0.0) -> DenoisePlan:
    """A plan of `steps` of the 50 fine steps, evenly spread; the first and the last are always among them.

    Raises PlanError for a number of steps that is not 2 to 50.
    """
    if not 2 <= steps <= FINE_STEPS:
        raise PlanError("number of steps out of range", found=steps, expected=f"2 to {FINE_STEPS}")
    indices = [round(index) for index in np.linspace(0, FINE_STEPS - 1, steps)]
    branches = choose_branches(_guidance(indices, FINE_STEPS), conditional_below)
    return plan_from_steps(indices, branches)


def plan_from_steps(indices: Sequence[int], branches: Sequence[Branch], fine_steps: int = FINE_STEPS) -> DenoisePlan:
    """A plan of the fine plan's steps with these ascending indices; 0 and `fine_steps` - 1 are among them."""
    fine = even_timesteps(fine_steps)
    timesteps = [fine[index] for index in indices]
    return build_plan(timesteps, guidance=_guidance(indices, fine_steps), branches=branches, noise_steps=fine_steps)


def mean_guidance(start: int, end: int, fine_steps: int = FINE_STEPS) -> float:
    """Guidance of one step over fine steps `start` to `end` - 1: their mean, weighted by their share of the latent."""
    fine = even_timesteps(fine_steps)
    curve = np.array([wave_guidance(timestep, fine_steps) for timestep in fine[start:end]])
    weights = _signal_weights(fine, start, end) if end < fine_steps else np.ones(end - start)
    return float(weights @ curve / weights.sum())


def _guidance(indices: Sequence[int], fine_steps: int) -> list[float]:
    return [
        mean_guidance(start, end, fine_steps) for start, end in zip(indices, [*indices[1:], fine_steps], strict=True)
    ]


def noise_weights(plan: DenoisePlan) -> list[NDArray[np.float32]]:
    """For each step but the last: weights of the next draws, whose weighted sum is its noise, of unit variance.

    One draw a step if the plan has its own noise; else one for each fine step that the step spans.
    """
    if not plan.noise_steps:
        return [np.ones(1, np.float32)] * (len(plan) - 1)
    fine = even_timesteps(plan.noise_steps)
    indices = [fine.index(step.timestep) for step in plan]
    return [_noise_weights(fine, start, end) for start, end in zip(indices, indices[1:], strict=False)]


def _noise_weights(fine: Sequence[int], start: int, end: int) -> NDArray[np.float32]:
    levels = signal_levels(fine)
    snr = [half_log_snr(float(level)) for level in levels[start : end + 1]]
    weights = np.array(
        [
            math.exp(after - snr[-1]) * math.sqrt(-math.expm1(2.0 * (before - after)))
            for before, after in zip(snr, snr[1:], strict=False)
        ]
    )
    unit: NDArray[np.float32] = (weights / np.linalg.norm(weights)).astype(np.float32)
    return unit


def _signal_weights(fine: Sequence[int], start: int, end: int) -> NDArray[np.float64]:
    """Weight of each fine step's x0 in the latent at `end`."""
    levels = signal_levels(fine)[start : end + 1]
    snr = [half_log_snr(float(level)) for level in levels]
    spreads = np.sqrt(1.0 - levels**2)
    growth = [-math.expm1(2.0 * (before - after)) for before, after in zip(snr, snr[1:], strict=False)]
    kept = [math.exp(after - snr[-1]) for after in snr[1:]]
    weights: NDArray[np.float64] = np.array(growth) * levels[1:] * np.array(kept) * spreads[-1] / spreads[1:]
    return weights
