"""The noise's bits never change: the test vectors, and the table they come from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from animegamer_rt import noise as module
from animegamer_rt.errors import BackendError
from animegamer_rt.noise import TABLE_SHA256, VERSION, Noise, as_array, draw_turn, load_table

FULL_SIZE = (1, 5, 16, 60, 90)
ONE = np.ones(1, np.float32)


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def test_a_draw_has_the_recorded_words_and_numbers() -> None:
    words = np.random.Philox(key=np.array([7, 0], np.uint64), counter=np.array([0, 3, 1, VERSION], np.uint64))
    assert [int(word) for word in words.random_raw(4)] == [
        0xFC9EDEBF46B681BF,
        0xC5625492FEA2179E,
        0xF8AE51C9B4C7B2CE,
        0xA12BF5F51B1E65D3,
    ]
    drawn = Noise(7, 1, 3, ONE, FULL_SIZE).array()
    recorded = np.array([-0.61126566, 0.73177052, 2.59961128, 1.05810928], np.float32)
    np.testing.assert_array_equal(drawn.reshape(-1)[:4], recorded)
    assert sha256(drawn).startswith("04725f541aae9806")
    assert drawn.dtype == np.float32 and drawn.shape == FULL_SIZE


def test_version_1_is_what_old_turns_were_drawn_from() -> None:
    first, second, last = map(as_array, draw_turn(7, 2, [np.array([0.6, 0.8], np.float32), ONE[:0]], (4, 4), version=1))
    drawn = np.random.Generator(np.random.Philox(np.random.SeedSequence([7, 2]))).standard_normal((3, 4, 4), np.float32)
    np.testing.assert_array_equal(first, drawn[0])
    np.testing.assert_array_equal(second, np.float32(0.6) * drawn[1] + np.float32(0.8) * drawn[2])
    np.testing.assert_array_equal(last, second)


def test_the_shipped_table_is_the_means_of_the_normal_distributions_parts() -> None:
    """How the file was made. Float64 rounds all of these means alike; another libm is the only thing to differ."""
    normal, parts = NormalDist(), 65536
    edges = [0.0, *(normal.pdf(normal.inv_cdf(part / parts)) for part in range(1, parts)), 0.0]
    means = np.diff(edges) * -parts
    table = (np.round(means / np.sqrt(2 * np.mean(means**2)) * 2**21) / 2**21).astype(np.float32)
    np.testing.assert_array_equal(load_table(), table)
    assert sha256(table) == TABLE_SHA256


def test_a_damaged_table_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = load_table()[32768:].copy()
    damaged[5] += 2**-21
    (tmp_path / "noise_table.f32").write_bytes(damaged.tobytes())
    monkeypatch.setattr(module, "files", lambda package: tmp_path)
    with pytest.raises(BackendError, match=r"noise_table\.f32: .*damaged; found .*; expected a3e4c33d.*; install"):
        load_table.__wrapped__()


def test_seed_turn_draw_and_place_are_independent_and_normal() -> None:
    cases = ((7, 1, 0), (7, 1, 1), (7, 2, 0), (8, 1, 0), (7 + 2**64, 1, 0))
    drawn = np.stack([Noise(*case, ONE, (200_000,)).array() for case in cases]).astype(np.float64)
    # Standard errors of 200000 numbers: 0.0022, 0.0016 and, of the fourth moment, 0.022; five of them are allowed.
    assert np.abs(drawn.mean(1)).max() < 0.011 and np.abs(drawn.std(1) - 1).max() < 0.008
    assert np.abs((drawn**4).mean(1) - 3).max() < 0.11
    halves = drawn.reshape(2 * len(cases), -1)
    assert np.abs(np.corrcoef(halves) - np.eye(len(halves))).max() < 0.016


def test_a_step_is_the_weighted_sum_of_its_draws_and_of_none_is_zero() -> None:
    weights = np.array([0.6, -0.3, 0.7], np.float32)
    found = Noise(3, 5, 2, weights, (1000,)).array()
    expected = sum(weight * Noise(3, 5, 2 + k, ONE, (1000,)).array() for k, weight in enumerate(weights))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not Noise(3, 5, 2, ONE[:0], (1000,)).array().any()
    long = Noise(3, 5, 2, weights, FULL_SIZE).array().reshape(-1)
    assert sha256(long).startswith("dc8f7f3da0216acc"), "pieces join"
