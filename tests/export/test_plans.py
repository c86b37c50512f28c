"""The plans that export writes: the reference's own, and coarse plans that follow it."""

from __future__ import annotations

import numpy as np
import pytest

from animegamer_export.support.plans import coarse_plan, exact_plan
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan, noise_weights
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.errors import PlanError


def test_the_wave_has_the_published_values() -> None:
    steps = exact_plan().steps
    for index, expected in {0: 2.2915, 1: 2.5435, 2: 6.9744, 3: 6.4204, 6: 1.0376, 10: 1.0048}.items():
        assert steps[index].guidance == pytest.approx(expected, abs=5e-5)


def test_a_reduced_plan_takes_its_guidance_from_the_curve_of_50_steps() -> None:
    ten, fifty = build_plan(even_timesteps(10)), exact_plan(50)
    at_timestep = {step.timestep: step.guidance for step in fifty}
    assert [step.guidance for step in ten] == [at_timestep[step.timestep] for step in ten]
    assert exact_plan(10).steps[0].guidance == pytest.approx(3.433157, abs=1e-6)


def test_exact_plan_is_fifty_guided_pairs_with_noise_in_all_but_the_last() -> None:
    plan = exact_plan()
    assert {step.branch for step in plan} == {"pair"}
    assert plan.network_evaluations == 100
    table = plan.coefficients()
    assert table.shape == (50, 8) and table.dtype == np.float32
    assert np.isfinite(table).all()
    assert [step.coefficients.c_noise != 0 for step in plan] == [*[True] * 49, False]
    assert plan.steps[-1].coefficients[4:] == (0.0, 1.0, 0.0, 0.0)


def test_steps_47_and_48_alone_need_no_guidance() -> None:
    plan = exact_plan(conditional_below=1e-5)
    assert [k for k, step in enumerate(plan) if step.branch == "conditional"] == [47, 48]
    assert plan.network_evaluations == 98


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
    apart = last_latent(build_plan(even_timesteps(steps)), draws, 0.7)
    assert np.abs(fine - apart).std() > 10 * np.abs(fine - coarse).max()


@pytest.mark.parametrize("steps", [1, 51])
def test_impossible_number_of_steps_is_refused(steps: int) -> None:
    with pytest.raises(PlanError, match="2 to 50"):
        coarse_plan(steps)
