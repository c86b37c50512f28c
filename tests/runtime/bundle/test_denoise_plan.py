"""The guidance wave, plans, and coarse plans that follow the fine ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from animegamer_rt.bundle.denoise_plan import (
    BlockCache,
    DenoisePlan,
    build_plan,
    coarse_plan,
    even_plan,
    exact_plan,
    noise_weights,
)
from animegamer_rt.errors import PlanError


def test_the_wave_has_the_published_values() -> None:
    steps = exact_plan().steps
    for index, expected in {0: 2.2915, 1: 2.5435, 2: 6.9744, 3: 6.4204, 6: 1.0376, 10: 1.0048}.items():
        assert steps[index].guidance == pytest.approx(expected, abs=5e-5)


def test_a_reduced_plan_takes_its_guidance_from_the_curve_of_50_steps() -> None:
    ten, fifty = even_plan(10), exact_plan(50)
    at_timestep = {step.timestep: step.guidance for step in fifty}
    assert [step.guidance for step in ten] == [at_timestep[step.timestep] for step in ten]
    assert exact_plan(10).steps[0].guidance == pytest.approx(3.433157, abs=1e-6)


def test_exact_plan_is_fifty_guided_pairs_with_noise_in_all_but_the_last() -> None:
    plan = exact_plan()
    assert {step.branch for step in plan} == {"pair"}
    assert plan.network_rows == 100 and plan.noise_draws == 49
    table = plan.coefficients()
    assert table.shape == (50, 8) and table.dtype == np.float32
    assert np.isfinite(table).all()
    assert plan.steps[-1].coefficients[4:] == (0.0, 1.0, 0.0, 0.0)


def test_steps_47_and_48_alone_need_no_guidance() -> None:
    plan = even_plan(50, conditional_below=1e-5)
    assert [k for k, step in enumerate(plan) if step.branch == "conditional"] == [47, 48]
    assert plan.network_rows == 98


def test_unguided_step_keeps_the_difference_and_ignores_it() -> None:
    plan = build_plan([999, 500, 200, 50], branches=["pair", "conditional", "reuse", "pair"])
    _, conditional, reuse, pair = (step.coefficients for step in plan)
    assert (conditional.reuse, conditional.guidance_minus_one) == (1.0, 0.0)
    assert reuse.reuse == 1.0 and reuse.guidance_minus_one == plan.steps[2].guidance - 1.0
    assert pair.reuse == 0.0
    assert [step.rows for step in plan] == [(0, 1), (1,), (1,), (0, 1)]


def test_a_plan_survives_json() -> None:
    plan = build_plan([999, 500, 200, 50], branches=["pair", "conditional", "reuse", "pair"], stochastic=False)
    again = DenoisePlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    skipping = build_plan([999, 500, 10], skip_blocks=[(), (2, 3), ()])
    again = DenoisePlan.from_dict(json.loads(json.dumps(skipping.to_dict())))
    assert again == skipping and again.steps[1].blocks == (2, 3, True)


def test_a_step_keeps_blocks_only_for_the_steps_that_skip_them() -> None:
    plan = build_plan(
        [900, 800, 700, 600, 500, 400, 300],
        branches=["pair", "pair", "conditional", "pair", "pair", "conditional", "conditional"],
        skip_blocks=[(), (), (1, 2), (1, 2), (), (), (0, 3)],
    )
    kept, reused = BlockCache(1, 2, False), BlockCache(1, 2, True)
    assert [step.blocks for step in plan] == [
        None,
        kept,
        reused,
        reused,
        None,  # row 1 is computed again before anyone skips it
        BlockCache(0, 3, False),
        BlockCache(0, 3, True),
    ]
    assert (plan.network_rows, plan.cost(4)) == (11, 11 - 0.5 - 2 * 0.5 - 1)


def _steps(**change: Any) -> dict[str, Any]:
    steps = [{"timestep": t, "guidance": 2.0, "branch": "pair"} for t in (999, 500)]
    steps[1].update(change)
    return {"steps": steps}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"steps": 3}, "not a list"),
        ({"steps": []}, "too few steps"),
        ({"stepps": []}, "did you mean 'steps'"),
        (_steps(timestep=999), "step 1: impossible timestep"),
        (_steps(guidance=float("nan")), "impossible guidance"),
        (_steps(branch="both"), "unknown branch"),
        (_steps(skip_blocks=[2, 1]), "impossible blocks"),
        (_steps(skip_blocks=[1]), "impossible blocks"),
        ({"steps": [{"timestep": 999, "guidance": 1}]}, "missing key 'branch'"),
        ({"steps": [{"timestep": t, "guidance": 1, "branch": "reuse"} for t in (9, 5)]}, "reuse before any pair"),
    ],
)
def test_an_impossible_plan_is_refused_with_its_reason(data: object, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        DenoisePlan.from_dict(data)


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
