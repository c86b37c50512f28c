"""The denoiser runs its plan, step by step, on noise that the seed and the turn number decide."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

import fakes
from animegamer_rt.bundle.denoise_plan import build_plan, noise_weights
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.errors import PlanError
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
    drawn = [list(islice(one.draw_noise(seed, turn), 3)) for seed, turn in ((7, 2), (7, 3), (8, 2))]
    assert np.array_equal(drawn[0], list(islice(other.draw_noise(7, 2), 3)))
    assert drawn[0][0].shape == LATENT and drawn[0][0].dtype == np.float32
    everything = np.stack([noise for turn in drawn for noise in turn]).reshape(9, -1)
    assert len(np.unique(everything, axis=0)) == 9


def noise_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("noise")]


def test_a_turn_that_is_broken_off_draws_no_more_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, broken_off = list[int](), threading.Event()

    def draws(self: Denoiser, seed: int, turn: int) -> Iterator[np.ndarray]:
        for number in range(6):
            if number == 3:
                broken_off.wait(10)
            drawn.append(number)
            yield np.full(LATENT, number, np.float32)

    monkeypatch.setattr(Denoiser, "_draw_noise", draws)
    denoiser = Denoiser(fakes.FakeDenoiser(), build_plan(even_timesteps(6)), LATENT)
    steps = denoiser.denoise(SHOT, 0.0, denoiser.draw_noise(7, 1))
    next(steps)
    steps.close()
    broken_off.set()
    for thread in noise_threads():
        thread.join(10)
    assert not noise_threads() and drawn == [0, 1, 2, 3]


def test_plan_that_skips_blocks_is_refused_where_engines_or_network_have_none() -> None:
    plan, part = build_plan([999, 500], skip_blocks=[(), (1, 2)]), fakes.FakeDenoiser()
    with pytest.raises(PlanError, match="do not support; use another plan, or PyTorch: --device torch"):
        Denoiser(part, plan, LATENT)
    part.skippable_blocks = 2
    with pytest.raises(PlanError, match="the network does not have; found block 2; expected 0 to 1"):
        Denoiser(part, plan, LATENT)
    part.skippable_blocks = 3
    Denoiser(part, plan, LATENT)


def test_steps_get_the_weighted_sums_of_the_seeds_draws() -> None:
    plan = build_plan(even_timesteps(50)[::7], noise_steps=50)
    whole = np.random.Generator(np.random.Philox(np.random.SeedSequence([7, 2])))
    drawn = list(islice(Denoiser(fakes.FakeDenoiser(), plan, LATENT).draw_noise(7, 2), len(plan)))
    np.testing.assert_array_equal(drawn[0], whole.standard_normal(LATENT, dtype=np.float32))
    for weights, found in zip(noise_weights(plan), drawn[1:], strict=True):
        expected = np.zeros(LATENT, np.float32)
        for weight in weights:
            expected += weight * whole.standard_normal(LATENT, dtype=np.float32)
        np.testing.assert_array_equal(found, expected)
