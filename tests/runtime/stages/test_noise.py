"""Noise drawn by several threads is that of one generator, value for value, and of the plan's sums."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import fakes
from animegamer_rt.bundle.coarse_plan import coarse_plan, noise_weights
from animegamer_rt.stages import noise
from animegamer_rt.stages.denoiser import Denoiser

LATENT = (1, 5, 16, 3, 7)


def one_generator(*seeds: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seeds)))


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("piece_words", [64, 4096, noise.PIECE_WORDS])
def test_values_are_those_of_one_generator(threads: int, piece_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of small pieces many begin within a value of the piece before; a value of the tail takes four words and more.
    monkeypatch.setattr(noise, "available_cores", lambda: threads)
    for seed, size in ((7, 3 * piece_words), (8, 77)):
        whole = one_generator(seed, 2)
        for found in noise.normal_arrays([seed, 2], (7, size // 7), 3, piece_words=piece_words):
            np.testing.assert_array_equal(found, whole.standard_normal((7, size // 7), dtype=np.float32))


def test_steps_get_the_weighted_sums_of_the_seeds_draws() -> None:
    plan, whole = coarse_plan(6), one_generator(7, 2)
    drawn = list(islice(Denoiser(fakes.FakeDenoiser(), plan, LATENT).draw_noise(7, 2), len(plan)))
    np.testing.assert_array_equal(drawn[0], whole.standard_normal(LATENT, dtype=np.float32))
    for weights, found in zip(noise_weights(plan), drawn[1:], strict=True):
        expected = np.zeros(LATENT, np.float32)
        for weight in weights:
            expected += weight * whole.standard_normal(LATENT, dtype=np.float32)
        np.testing.assert_array_equal(found, expected)
