"""The denoiser runs its plan, step by step, on noise that the seed and the turn number decide."""

from __future__ import annotations

import numpy as np
import pytest

import fakes
from animegamer_rt.denoiser import Denoiser
from animegamer_rt.errors import PlanError
from animegamer_rt.schedule import build_plan, even_plan

LATENT = (1, 5, 16, 2, 3)
SHOT = np.zeros((226, 8), np.float32)


def test_every_step_of_the_plan_is_run_in_order() -> None:
    plan = build_plan([999, 500, 100], branches=["pair", "reuse", "conditional"])
    part = fakes.FakeDenoiser()
    denoiser = Denoiser(part, plan, LATENT)
    done = list(denoiser.denoise(SHOT, 2.5, denoiser.draw_noise(7, 1)))
    assert [step.step for step in done] == [1, 2, 3] and done[0].steps == 3
    assert [timestep for _, timestep, _ in part.steps] == [999.0, 500.0, 100.0]
    assert [rows for _, _, rows in part.steps] == [(0, 1), (1,), (1,)]
    assert [given for given, _, _ in part.steps] == [tuple(row) for row in plan.coefficients().tolist()]
    assert part.motion_scopes == [2.5]
    assert done[-1].latent.shape == LATENT and done[-1].seconds_left == 0


def test_latent_before_the_last_step_is_our_own_mistake() -> None:
    denoiser = Denoiser(fakes.FakeDenoiser(), even_plan(3), LATENT)
    first = next(iter(denoiser.denoise(SHOT, 0.0, denoiser.draw_noise(7, 1))))
    with pytest.raises(AssertionError):
        _ = first.latent


def test_noise_depends_on_seed_and_turn_alone() -> None:
    one, other = (Denoiser(fakes.FakeDenoiser(), even_plan(3), LATENT) for _ in range(2))
    assert (one.draw_noise(7, 2) == other.draw_noise(7, 2)).all()
    assert one.draw_noise(7, 2).shape == (3, *LATENT) and one.draw_noise(7, 2).dtype == np.float32
    assert not (one.draw_noise(7, 2) == one.draw_noise(7, 3)).any()
    assert not (one.draw_noise(7, 2) == one.draw_noise(8, 2)).any()


def test_plans_of_different_length_start_from_the_same_noise() -> None:
    short, long = (Denoiser(fakes.FakeDenoiser(), even_plan(steps), LATENT) for steps in (3, 9))
    assert (short.draw_noise(7, 1)[0] == long.draw_noise(7, 1)[0]).all()


def test_nothing_runs_after_the_caller_stops_asking() -> None:
    part = fakes.FakeDenoiser()
    denoiser = Denoiser(part, even_plan(6), LATENT)
    steps = denoiser.denoise(SHOT, 0.0, denoiser.draw_noise(7, 1))
    next(steps)
    next(steps)
    assert len(part.steps) == 2


def test_plan_that_skips_blocks_is_refused() -> None:
    with pytest.raises(PlanError, match="skips blocks"):
        Denoiser(fakes.FakeDenoiser(), build_plan([999, 500], skip_blocks=[(), (1,)]), LATENT)
