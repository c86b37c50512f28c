"""The noise schedule: signal levels, timesteps, the guidance wave, and the solver's coefficients.

NumPy only. Source: MODEL.md section 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from animegamer_rt.errors import PlanError

TRAINING_TIMESTEPS = 1000
BETA_FIRST, BETA_LAST = 0.00085, 0.012
SHIFT = 3.0
# Guidance: 1 + WAVE_HEIGHT * (1 - cos(pi * ((n - t) / n)^WAVE_POWER)) / 2, with n = CURVE_STEPS.
WAVE_HEIGHT, WAVE_POWER = 6.0, 5
# n is 50 whatever the plan's number of steps: another n would give another wave.
CURVE_STEPS = 50


@cache
def _alpha_products() -> NDArray[np.float64]:
    """abar of each training timestep after the shift, [1000]."""
    betas = np.linspace(math.sqrt(BETA_FIRST), math.sqrt(BETA_LAST), TRAINING_TIMESTEPS) ** 2
    products = np.cumprod(1.0 - betas)
    shifted: NDArray[np.float64] = products / (SHIFT - (SHIFT - 1.0) * products)
    return shifted


def signal_levels(timesteps: Sequence[int]) -> NDArray[np.float64]:
    """Signal level a (square root of abar) at each of the descending timesteps, exactly 0 at the first of them.

    The rescaling to zero terminal signal uses the given timesteps' own ends, as the reference does.
    """
    levels = np.sqrt(_alpha_products()[np.asarray(timesteps)])
    rescaled: NDArray[np.float64] = (levels - levels[0]) * (levels[-1] / (levels[-1] - levels[0]))
    return rescaled


@cache
def full_signal_levels() -> NDArray[np.float64]:
    """Signal level of all 1000 training timesteps, index = timestep: from about 1 down to 0."""
    return signal_levels(range(TRAINING_TIMESTEPS - 1, -1, -1))[::-1]


def nearest_signal_level(level: float) -> float:
    """The entry of the full schedule nearest to `level`: the network was only trained on these levels."""
    full = full_signal_levels()
    return float(full[np.abs(full - level).argmin()])


def even_timesteps(steps: int) -> tuple[int, ...]:
    """The reference's timesteps for a number of steps: 999, 979, .. 19 for 50. Raises PlanError below 2 steps."""
    if steps < 2 or steps > TRAINING_TIMESTEPS - 1:
        raise PlanError("number of steps out of range", found=steps, expected=f"2 to {TRAINING_TIMESTEPS - 1}")
    return tuple(int(t) for t in np.linspace(TRAINING_TIMESTEPS - 1, 0, steps, endpoint=False))


def wave_guidance(timestep: int, curve_steps: int = CURVE_STEPS) -> float:
    """Guidance in [1, 7] at a training timestep, on the curve of `curve_steps` steps.

    Quirk: the reference passes the timestep where a step's index was surely meant, so the values jump over the whole
    range. Its weights and samples depend on it, so it stays. Float64: the cosine's argument reaches 1e7.
    """
    wave = math.cos(math.pi * ((curve_steps - float(timestep)) / curve_steps) ** WAVE_POWER)
    return 1.0 + WAVE_HEIGHT * (1.0 - wave) / 2.0


class Coefficients(NamedTuple):
    """The eight numbers of one step, in the order of the denoiser's input.

    d = v_last - v_first + reuse * difference; v = v_last + guidance_minus_one * d; x0 = signal * latent - sigma * v;
    next latent = c_latent * latent + c_x0 * x0 + c_x0_prev * x0_prev + c_noise * noise; next difference = d.
    """

    signal: float
    sigma: float
    guidance_minus_one: float
    reuse: float
    c_latent: float
    c_x0: float
    c_x0_prev: float
    c_noise: float


def solver_coefficients(timesteps: Sequence[int], stochastic: bool) -> list[Coefficients]:
    """Coefficients of (SDE-)DPM++ 2M, with guidance and reuse 0."""
    levels = [*(float(level) for level in signal_levels(timesteps)), 1.0]
    last = len(timesteps) - 1
    result = []
    h_before = math.inf
    for k in range(len(timesteps)):
        quantised = nearest_signal_level(levels[k])
        sigma = math.sqrt(1.0 - quantised**2)
        if k == last:
            # After the last step no noise is left: the guided x0 is the latent.
            result.append(Coefficients(quantised, sigma, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0))
            break
        h = half_log_snr(levels[k + 1]) - half_log_snr(levels[k])
        spread, spread_next = (math.sqrt(1.0 - level**2) for level in levels[k : k + 2])
        order = h / (2.0 * h_before) if k else 0.0
        growth = -math.expm1(-2.0 * h if stochastic else -h) * levels[k + 1]
        result.append(
            Coefficients(
                signal=quantised,
                sigma=sigma,
                guidance_minus_one=0.0,
                reuse=0.0,
                c_latent=spread_next / spread * (math.exp(-h) if stochastic else 1.0),
                c_x0=growth * (1.0 + order),
                c_x0_prev=-growth * order,
                c_noise=spread_next * math.sqrt(-math.expm1(-2.0 * h)) if stochastic else 0.0,
            )
        )
        h_before = h
    return result


def half_log_snr(level: float) -> float:
    """lambda = log(a / sqrt(1 - a^2)), along which the solver steps; minus infinity at zero terminal signal."""
    return -math.inf if level <= 0.0 else math.log(level / math.sqrt(1.0 - level**2))
