"""A coarse plan follows the fine one: the same noise and guidance, in fewer and longer steps."""

from __future__ import annotations

import numpy as np
import pytest

from animegamer_rt.bundle.coarse_plan import coarse_plan, noise_weights
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan, even_plan, exact_plan
from animegamer_rt.bundle.noise_schedule import even_timesteps
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


@pytest.mark.parametrize("steps", [2, 18])
def test_the_noise_of_every_step_has_unit_variance_and_every_fine_draw_is_used(steps: int) -> None:
    weights = noise_weights(coarse_plan(steps))
    assert sum(map(len, weights)) == 49
    assert np.allclose([np.square(mix).sum() for mix in weights], 1.0, atol=1e-6)


def test_guidance_weighs_a_step_by_what_is_left_of_it_where_the_next_begins() -> None:
    fine, plan = exact_plan(50).steps, coarse_plan(7)
    places = [even_timesteps(50).index(step.timestep) for step in plan]
    for step, place, end in zip(plan, places, places[1:], strict=False):
        weights, left = list[float](), 1.0
        for one in reversed(fine[place:end]):
            weights.append(left * (one.coefficients.c_x0 + one.coefficients.c_x0_prev))
            left *= one.coefficients.c_latent
        guidance = [one.guidance for one in reversed(fine[place:end])]
        assert step.guidance == pytest.approx(np.average(guidance, weights=weights), rel=1e-9)
        assert step.guidance != pytest.approx(np.mean(guidance), rel=1e-3)
    assert plan.steps[-1].guidance == fine[-1].guidance


def test_plan_survives_being_written_down() -> None:
    plan = coarse_plan(12, conditional_below=0.1)
    assert DenoisePlan.from_dict(plan.to_dict()) == plan
    assert "noise_steps" not in even_plan(12).to_dict()


@pytest.mark.parametrize("steps", [1, 51])
def test_impossible_number_of_steps_is_refused(steps: int) -> None:
    with pytest.raises(PlanError, match="2 to 50"):
        coarse_plan(steps)


@pytest.mark.parametrize("noise_steps", [7, "many"])
def test_noise_of_steps_that_are_not_there_is_refused(noise_steps: object) -> None:
    with pytest.raises(PlanError, match="noise_steps"):
        build_plan([999, 500, 100], noise_steps=noise_steps)  # type: ignore[arg-type]
