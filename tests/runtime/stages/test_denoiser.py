"""The denoiser runs its plan, step by step, on noise that the seed and the turn number decide."""

from __future__ import annotations

import numpy as np

import fakes
from animegamer_rt.bundle.denoise_plan import build_plan, noise_weights
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.noise import Noise, as_array
from animegamer_rt.stages.denoiser import Denoiser

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


def test_noise_depends_on_seed_and_turn_alone() -> None:
    one, other = (Denoiser(fakes.FakeDenoiser(), build_plan(even_timesteps(steps)), LATENT) for steps in (3, 9))
    drawn = [[*map(as_array, one.draw_noise(seed, turn))][:3] for seed, turn in ((7, 2), (7, 3), (8, 2))]
    assert np.array_equal(drawn[0], [*map(as_array, other.draw_noise(7, 2))][:3])
    assert drawn[0][0].shape == LATENT and drawn[0][0].dtype == np.float32
    everything = np.stack([noise for turn in drawn for noise in turn]).reshape(9, -1)
    assert len(np.unique(everything, axis=0)) == 9


def test_steps_get_the_weighted_sums_of_the_turns_draws() -> None:
    plan, fine = (build_plan(even_timesteps(50)[::every], noise_steps=50) for every in (7, 1))
    start, *steps, last = Denoiser(fakes.FakeDenoiser(), plan, LATENT).draw_noise(7, 2)
    _, *drawn, _ = (as_array(noise) for noise in Denoiser(fakes.FakeDenoiser(), fine, LATENT).draw_noise(7, 2))
    assert isinstance(start, Noise) and (start.first, *start.weights) == (0, 1.0)
    for weights, found in zip(noise_weights(plan), steps, strict=True):
        expected = sum(weight * drawn.pop(0) for weight in weights)
        np.testing.assert_allclose(as_array(found), expected, atol=1e-6)
    assert not drawn and not as_array(last).any(), "the last step adds none"
