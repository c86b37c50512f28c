"""Plans as data: what a step runs and keeps, and what no plan may say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.errors import PlanError


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
    coarse = build_plan(even_timesteps(50)[::7], branches=["pair", *["conditional"] * 7], noise_steps=50)
    assert DenoisePlan.from_dict(coarse.to_dict()) == coarse


def _steps(**change: Any) -> dict[str, Any]:
    steps = [{"timestep": t, "guidance": 2.0, "branch": "pair"} for t in (999, 500)]
    steps[1].update(change)
    return {"steps": steps}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"steps": 3}, "wrong type of value; found 3; expected a list"),
        ({"steps": []}, "too few steps"),
        ({"stepps": []}, "did you mean 'steps'"),
        (_steps(timestep=999), "step 1: impossible timestep"),
        (_steps(guidance=float("nan")), "impossible guidance"),
        (_steps(branch="both"), "unknown branch"),
        (_steps(skip_blocks=[1, 2]), "unknown key 'skip_blocks'"),
        ({"steps": [{"timestep": 999, "guidance": 1}]}, "the key 'branch' is missing"),
        ({"steps": [{"timestep": t, "guidance": 1, "branch": "reuse"} for t in (9, 5)]}, "reuse before any pair"),
    ],
)
def test_an_impossible_plan_is_refused_with_its_reason(data: object, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        DenoisePlan.from_dict(data)
