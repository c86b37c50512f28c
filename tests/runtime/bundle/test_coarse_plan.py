"""A coarse plan follows the fine one: the same noise and guidance, in fewer and longer steps."""

from __future__ import annotations

import numpy as np
import pytest

from animegamer_rt.bundle.denoise_plan import DenoisePlan, coarse_plan, even_plan, exact_plan, noise_weights
from animegamer_rt.errors import PlanError


def last_latent(plan: DenoisePlan, draws: np.ndarray, target: float) -> np.ndarray:
    """The latent before the last step, if the network always sees x0 = `target` whatever the guidance."""
    weights = noise_weights(plan)
    latent, previous, drawn = draws[0], np.zeros_like(draws[0]), 1
    for step, mix in zip(plan.steps[:-1], weights, strict=True):
        noise = sum(weight * draws[drawn + k] for k, weight in enumerate(mix))
        drawn += len(mix)
        c, x0 = step.coefficients, np.full_like(latent, target)
        latent = c.c_latent * latent + c.c_x0 * x0 + c.c_x0_prev * (previous if step is not plan.steps[0] else x0)
        latent, previous = latent + c.c_noise * noise, x0
    return latent


@pytest.mark.parametrize("steps", [2, 10, 49])
def test_where_the_network_says_nothing_new_the_coarse_path_ends_where_the_fine_one_does(steps: int) -> None:
    draws = np.random.default_rng(0).standard_normal((50, 200))
    fine, coarse = (last_latent(plan, draws, 0.7) for plan in (exact_plan(50), coarse_plan(steps)))
    # float32 weights; with noise of its own the two would be as far apart as two clips
    assert np.abs(fine - coarse).max() < 1e-5
    apart = last_latent(even_plan(steps), draws, 0.7)
    assert np.abs(fine - apart).std() > 10 * np.abs(fine - coarse).max()


def test_plan_survives_being_written_down() -> None:
    plan = coarse_plan(12, conditional_below=0.1)
    assert DenoisePlan.from_dict(plan.to_dict()) == plan
    assert "noise_steps" not in even_plan(12).to_dict()


@pytest.mark.parametrize("steps", [1, 51])
def test_impossible_number_of_steps_is_refused(steps: int) -> None:
    with pytest.raises(PlanError, match="2 to 50"):
        coarse_plan(steps)
