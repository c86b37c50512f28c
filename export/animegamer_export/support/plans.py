"""The plans that export writes: the reference's own steps, and coarse plans that draw the same clip in fewer.

The guidance of a coarse step is the mean of the fine steps' that it spans, weighted by their share of the latent. The
weights follow from the solver by writing its steps out one after another (MODEL.md section 5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from animegamer_rt.bundle.denoise_plan import Branch, DenoisePlan, build_plan
from animegamer_rt.bundle.manifest import EXACT, PlanEntry
from animegamer_rt.bundle.noise_schedule import even_timesteps, half_log_snr, signal_levels, wave_guidance
from animegamer_rt.errors import PlanError

FINE_STEPS = 50


def exact_plan(steps: int = FINE_STEPS, *, conditional_below: float = 0.0) -> DenoisePlan:
    """The reference's own sampling: even steps, the wave taken with the plan's own number of them.

    conditional_below: a step whose guidance - 1 is less runs unguided, which saves a row.
    """
    guidance = [wave_guidance(timestep, steps) for timestep in even_timesteps(steps)]
    return build_plan(even_timesteps(steps), guidance=guidance, branches=_branches(guidance, conditional_below))


def coarse_plan(steps: int, *, conditional_below: float = 0.0) -> DenoisePlan:
    """A plan of `steps` of the 50 fine steps, evenly spread; the first and the last are always among them.

    Raises PlanError for a number of steps that is not 2 to 50.
    """
    if not 2 <= steps <= FINE_STEPS:
        raise PlanError("number of steps out of range", found=steps, expected=f"2 to {FINE_STEPS}")
    indices = [round(index) for index in np.linspace(0, FINE_STEPS - 1, steps)]
    return plan_from_steps(indices, _branches(_guidance(indices, FINE_STEPS), conditional_below))


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


def clear_fidelity(plans: Mapping[str, PlanEntry]) -> dict[str, PlanEntry]:
    """The plans without fidelity figures; `exact`, which needs none, becomes the default."""
    return {name: replace(entry, fidelity={}, default=name == EXACT) for name, entry in plans.items()}


def _guidance(indices: Sequence[int], fine_steps: int) -> list[float]:
    return [
        mean_guidance(start, end, fine_steps) for start, end in zip(indices, [*indices[1:], fine_steps], strict=True)
    ]


def _branches(guidance: Sequence[float], conditional_below: float) -> list[Branch]:
    return ["conditional" if scale - 1.0 < conditional_below else "pair" for scale in guidance]


def _signal_weights(fine: Sequence[int], start: int, end: int) -> NDArray[np.float64]:
    """Weight of each fine step's x0 in the latent at `end`."""
    levels = signal_levels(fine)[start : end + 1]
    snr = [half_log_snr(float(level)) for level in levels]
    spreads = np.sqrt(1.0 - levels**2)
    growth = [-math.expm1(2.0 * (before - after)) for before, after in zip(snr, snr[1:], strict=False)]
    kept = [math.exp(after - snr[-1]) for after in snr[1:]]
    weights: NDArray[np.float64] = np.array(growth) * levels[1:] * np.array(kept) * spreads[-1] / spreads[1:]
    return weights
