"""`bench run --suite 1`: what is frozen, and how long it plays."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_reader

import fakes
from animegamer_bench.suites import Suite, load_suite
from animegamer_bench.turns import measure_suite
from animegamer_rt.backends.onnxruntime.loader import load_reader
from animegamer_rt.pipeline import Pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline.open(fakes.write_bundle(tmp_path / "tiny"), fakes.fake_engines())


def test_suite_1_is_frozen() -> None:
    suite = load_suite(1)
    assert (suite.seconds, suite.turns, len(suite.games), {len(game) for game in suite.games}) == (600, 64, 16, {12})
    assert suite.sha256 == "f487e46e278cc7bc29ed815272a3f6afd3ec521f5a0140a52685f333f2de2776"


@pytest.mark.parametrize(("turn_s", "expected"), [(20.0, 64), (5.0, 120)], ids=["64 turns", "600 s"])
def test_a_suite_takes_its_turns_and_its_seconds(pipeline: Pipeline, turn_s: float, expected: int) -> None:
    clock = itertools.count(0.0, turn_s / 2)  # read before and after each turn
    timed = measure_suite(pipeline, load_suite(1), lambda: next(clock))
    assert abs(len(timed.rows) - expected) <= 1 and timed.complete
    assert [(row["game"], row["turn"]) for row in timed.rows[:13]] == [*((1, n) for n in range(1, 13)), (2, 1)]


def test_a_refused_text_is_a_turn_too_so_that_a_suite_has_the_same_turns_with_any_reader(tmp_path: Path) -> None:
    bundle = tiny_reader.add_reader(fakes.write_bundle(tmp_path / "tiny"))
    pipeline = Pipeline.open(bundle, replace(fakes.fake_engines(), reader=load_reader(bundle)))
    suite = Suite(2, (("Mia waves", "hello", "undo", "Tobo runs"),), seconds=0.0, turns=4)
    assert [row["turn"] for row in measure_suite(pipeline, suite).rows] == [1, 2, 3, 4]
