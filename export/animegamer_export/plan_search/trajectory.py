"""Records the exact plan's trajectory: each step's unguided prediction of x0, and the contribution of guidance.

The error of a coarser step is a weighted sum of these predictions, so `search` compares plans without running them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from animegamer_export.evaluate.fidelity import TurnInput
from animegamer_rt.backends.interface import DenoiserEngine, FloatArray
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.noise_schedule import Coefficients
from animegamer_rt.noise import as_array
from animegamer_rt.stages.denoiser import Denoiser

Gram = npt.NDArray[np.float64]


def trajectory_gram(part: DenoiserEngine, denoiser: Denoiser, plan: DenoisePlan, turns: Sequence[TurnInput]) -> Gram:
    """Inner products of the trajectory's predictions, per latent element and turn: float64 [2n, 2n] for n steps.

    Row k is step k's unguided x0. Row n + k is the contribution of guidance 2; guidance g contributes g - 1 times as
    much. denoiser: draws the noise; must be made with `plan`.
    """
    total = np.zeros((2 * len(plan), 2 * len(plan)))
    for turn in turns:
        predictions = np.stack(_trajectory(part, denoiser, plan, turn)).reshape(2 * len(plan), -1)
        total += (predictions @ predictions.T).astype(np.float64) / predictions.shape[1]
    return total / len(turns)


def _trajectory(part: DenoiserEngine, denoiser: Denoiser, plan: DenoisePlan, turn: TurnInput) -> list[FloatArray]:
    """The rows of `trajectory_gram` for one turn. Runs each step twice: unguided, and with guidance 2."""
    noise = denoiser.draw_noise(turn.seed, 1)
    latent = as_array(next(noise))
    x0_before = np.zeros_like(latent)
    unguided, added = [], []
    for step in plan:
        c = step.coefficients
        unguided_x0 = _predict_x0(part, turn, latent, float(step.timestep), c, (1,))
        guided_x0 = _predict_x0(part, turn, latent, float(step.timestep), c._replace(guidance_minus_one=1.0), (0, 1))
        unguided.append(unguided_x0)
        added.append(guided_x0 - unguided_x0)
        x0 = unguided_x0 + c.guidance_minus_one * (guided_x0 - unguided_x0)
        mixed = c.c_latent * latent + c.c_x0 * x0 + c.c_x0_prev * x0_before + c.c_noise * as_array(next(noise))
        latent, x0_before = mixed.astype(np.float32), x0
    return unguided + added


def _predict_x0(
    part: DenoiserEngine, turn: TurnInput, latent: FloatArray, timestep: float, c: Coefficients, rows: tuple[int, ...]
) -> FloatArray:
    """The network's x0 for `latent`: a step whose coefficients return only x0."""
    guidance = c.guidance_minus_one if len(rows) == 2 else 0.0
    only_x0 = Coefficients(c.signal, c.sigma, guidance, 0.0, c_latent=0.0, c_x0=1.0, c_x0_prev=0.0, c_noise=0.0)
    denoising = part.start(latent, turn.shot, turn.motion_scope)
    denoising.step(np.array(only_x0, np.float32), timestep, rows, latent)
    return denoising.latent()
