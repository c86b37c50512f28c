"""What `animegamer-rt bench` makes of turns whose every second is known, and what `--suite 1` plays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_reader

import fakes
from animegamer_bench import machine as measured_machine
from animegamer_bench import run as bench
from animegamer_bench.machine import Reading
from animegamer_bench.records import SAMPLE_COLUMNS
from animegamer_bench.run import BenchOptions
from animegamer_bench.suites import Suite, load_suite
from animegamer_bench.turns import TimedTurns, judge, measure_suite, play_gate, ssim
from animegamer_rt.backends.onnxruntime.loader import load_reader
from animegamer_rt.bundle.denoise_plan import build_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.events import Event, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction

STEPS, FRAMES = 6, 17
NUMBERS = list(range(1, 20))


def timed(turn: int, at: float, seconds: int) -> dict[str, float]:
    """A turn of so many seconds: a tenth of them to the state, four tenths of steps, then the vae with two chunks."""
    stages = (0.1 * seconds, 0.4 * seconds, 0.3 * seconds)
    return dict(zip(SAMPLE_COLUMNS, (1, turn, at, seconds, *stages, 0.1 * seconds, 0.7 * seconds), strict=True))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Its plans have figures of their own."""
    written = fakes.write_bundle(tmp_path / "tiny")
    plans = {
        name: PlanEntry(build_plan(even_timesteps(steps)).to_dict(), {"ssim": steps / 100}, default=name == "balanced")
        for name, steps in {"exact": STEPS, "balanced": 3}.items()
    }
    return write_manifest(written.folder, replace(written.manifest, plans=plans))


def quiet(asleep_s: float = 0.0) -> Callable[[], Reading]:
    """A machine of two processors that works for nobody else; every reading is a second after the last.

    asleep_s: it sleeps so long before the fourth reading, which is the one after the turns.
    """
    seconds = itertools.count()

    def read() -> Reading:
        at = next(seconds)
        awake_or_not = at + (asleep_s if at >= 3 else 0)
        return Reading(at=at, own=at, awake_or_not=awake_or_not, processors=2 * at, busy=at, stolen=0)

    return read


def measured(
    bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    order: Sequence[int] = (*NUMBERS[10:], *NUMBERS[:10]),
    machine: Callable[[], Reading] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The record of the plan `exact` on turns of 1 to 19 seconds."""

    def played(pipeline: object, turns: int) -> TimedTurns:
        starts = itertools.accumulate(order, initial=0)
        return TimedTurns(list(map(timed, count(1), starts, order)), sum(order))

    monkeypatch.setattr(bench, "measure_turns", played)
    monkeypatch.setattr(measured_machine, "ALONE_S", 0.0)
    monkeypatch.setattr(measured_machine, "read_machine", machine or quiet())
    told = BenchOptions(turns=len(order), **options)
    pipeline = Pipeline.open(bundle, fakes.fake_engines(), "exact")
    return bench._measure(
        told,
        fakes.fake_engines(),
        pipeline,
        {"host_memory_peak_mib": 300.0, "start_to_prompt_seconds": 1, "first_turn_of_process_seconds": 2.0},
    )


def test_record_is_of_what_was_measured(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(bundle, monkeypatch)
    assert (record["seconds_per_turn_p50"], record["seconds_per_turn_p90"]) == (10.0, 17.2)
    assert (record["seconds_per_turn_p95"], record["seconds_per_turn_max"]) == (None, 19.0), "19 turns carry no p95"
    assert {name: (of["p50"], of["p95"], of["max"]) for name, of in record["stages"].items()} == {
        "predictor": (1.0, None, 1.9),
        "denoiser": (4.0, None, 7.6),
        "vae": (3.0, None, 5.7),
    }
    assert record["samples"]["seconds"] == [*NUMBERS[10:], *NUMBERS[:10]]
    assert (record["first_turn"]["n"], record["turn_10_and_later"]["n"]) == (1, 10)
    assert record["seconds_to_state_p50"] == 1.0
    assert record["seconds_to_first_frame_p50"] == 7.0
    assert (record["fps"], record["real_time_factor"]) == (1.7, round(17 / 8 / 10, 3))
    assert (record["steps"], record["network_rows"]) == (STEPS, 2 * STEPS)
    assert record["fidelity"] == {"ssim": 0.06}
    assert (record["memory_peak_mib"], record["n"]) == (300.0, 19)


def test_a_steady_run_and_what_makes_one_unsteady(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = measured(bundle, monkeypatch, order=[10] * 12)
    assert (steady["unsteady"], steady["activity"]["during"]["others_share"]) == ([], 0.0)
    slower = measured(bundle, monkeypatch, order=[10] * 6 + [11] * 6)
    assert slower["unsteady"] == ["turns of the second half took 10 % longer than those of the first"]
    (few,) = measured(bundle, monkeypatch, order=[10] * 3)["unsteady"]
    assert few.startswith("3 turns are too few")
    slept = measured(bundle, monkeypatch, order=[10] * 12, machine=quiet(asleep_s=60.0))
    assert slept["unsteady"] == ["the machine slept for 60 s"]


def test_the_gate_passes_equal_frames_and_fails_others(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = measured(bundle, monkeypatch)["quality_gate"]
    assert (gate["passed"], gate["deterministic"], len(gate["frames_sha256"])) == (True, True, 2)
    pipeline, texts = Pipeline.open(bundle, fakes.fake_engines(), "exact"), ["Mia waves.", "Mia runs."]
    before = play_gate(pipeline, texts)
    drifted = [255 - clip for clip in before]
    assert judge(pipeline, fakes.fake_engines, texts, drifted)["passed"] is False


def test_turns_are_measured_with_a_full_window(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    histories = list[int]()
    run_turn = Pipeline.run_turn

    def noting(pipeline: Pipeline, session: Session, instruction: Instruction, **how: Any) -> Iterator[Event]:
        for event in run_turn(pipeline, session, instruction, **how):
            if isinstance(event, StatePredicted):
                histories.append(event.history_turns)
            yield event

    monkeypatch.setattr(Pipeline, "run_turn", noting)
    turns = bench.measure_turns(Pipeline.open(bundle, fakes.fake_engines()), 4)
    window = bundle.manifest.compatibility.history_turns
    # One more before them than the window holds, so that none is the first of its length.
    assert histories == [*range(window + 1), *[window] * 4]
    for row in turns.rows:
        assert 0 < row["predictor"] <= row["to_state"] < row["to_first_frame"] and row["seconds"] > 0


def test_similarity_is_that_of_opencvs_gaussian_window_with_mirrored_edges() -> None:
    random = np.random.default_rng(0)
    frame = random.integers(0, 255, (96, 144, 3), dtype=np.uint8)
    noisy = (frame // 2 + random.integers(0, 100, frame.shape)).astype(np.uint8)
    assert ssim(frame, frame) == 1
    assert ssim(frame, noisy) == ssim(noisy, frame) == pytest.approx(0.7038752050609065)  # by cv2.GaussianBlur


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
