"""The simulation of many servers: its queue is the one of theory, and its inputs say where they are from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.scale import RESULTS, Layout, Times, crowd, limits, read_inputs, waits

PRICES = Path(RESULTS).parent / "leaderboard" / "prices.json"


def test_a_player_alone_never_waits_and_a_full_pool_plays_as_fast_as_it_can() -> None:
    chance, second = np.random.default_rng(1), Times(1.0, 1.0001)
    alone = waits(chance, 1, 1, second, Times(3.0, 6.0), 1000.0)
    assert len(alone) > 200 and max(wait for _, wait in alone) == 0
    full = waits(chance, 8, 2, second, Times(1e-3, 1.1e-3), 1000.0)
    assert len(full) == pytest.approx(2000, rel=0.01)
    assert np.median([wait for _, wait in full]) == pytest.approx(3.0, rel=0.02), "six wait, two leave each second"


def test_engines_that_share_their_sessions_make_players_wait_less() -> None:
    service, think = Times(0.5, 0.7), Times(4.0, 9.0)
    alone, shared = (crowd(Layout("", workers, True), 16, 7, service, think, 3) for workers in (1, 8))
    assert alone["turns_per_s_of_an_engine"] == pytest.approx(shared["turns_per_s_of_an_engine"], rel=0.1)
    assert shared["wait_s"]["p95"] < 0.5 * alone["wait_s"]["p95"]


def test_every_input_is_of_a_record_or_says_that_it_is_assumed() -> None:
    inputs = read_inputs(RESULTS, PRICES)
    assert all(("measured" in one) != ("assumed" in one) for one in inputs.values())
    fullest = [one["engines"] for one in limits(inputs)]
    assert fullest == sorted(fullest) and fullest[0] > 1
