"""What `animegamer-rt bench` makes of turns whose every second is known: percentiles, ratios, energy, and the trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

import fakes
from animegamer_rt.bench import command as bench
from animegamer_rt.bench.command import BenchOptions
from animegamer_rt.bench.presets import Preset
from animegamer_rt.bench.roofline import Roofline
from animegamer_rt.bundle.denoise_plan import even_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import PlanError
from animegamer_rt.events import Done, FrameReady, Progress, StageSeconds, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling import energy
from animegamer_rt.profiling.energy import EnergyMeter
from animegamer_rt.profiling.trace import TurnTrace
from animegamer_rt.state.game import CharacterState, GameState

STEPS, FRAMES = 6, 17
NUMBERS = list(range(1, 20))


def timed(number: int) -> TurnTrace:
    """A turn of `number` seconds: a tenth of them to the state, four tenths of steps, then a chunk; and a chunk."""
    of: dict[str, Any] = {"session": "game", "turn": number, "sequence": 0}
    state = StatePredicted(
        **of,
        game_state=GameState(1, 2, 3, 4),
        character=CharacterState(),
        shown=CharacterState(),
        motion_scope=10.0,
        history_turns=2,
        shot=np.zeros((226, 8), np.float32),
    )
    marks: list[Any] = [(0.1 * number, state)]
    for step in range(1, STEPS + 1):
        marks.append((number * (0.1 + 0.4 * step / STEPS), Progress(**of, step=step, steps=STEPS, seconds_left=0.0)))
    for index in range(FRAMES):
        frame = FrameReady(**of, index=index, frame=np.empty((0, 0, 3), np.uint8))
        marks.append((number * (0.7 if index < 9 else 1.0), frame))
    seconds = StageSeconds(predictor=0.1 * number, denoiser=0.4 * number, vae=0.3 * number, total=number)
    return TurnTrace([*marks, (float(number), Done(**of, seconds=seconds))])


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Its plans have figures of their own."""
    written = fakes.write_bundle(tmp_path / "tiny")
    plans = {
        name: PlanEntry(even_plan(steps).to_dict(), {"ssim": steps / 100}, default=name == "balanced")
        for name, steps in {"exact": STEPS, "balanced": 3}.items()
    }
    return write_manifest(written.folder, replace(written.manifest, plans=plans))


class Counts(EnergyMeter):
    """So many joules whatever was done, of a counter that says whether it counts."""

    def __init__(self) -> None:
        super().__init__(None, "a counter")
        self.counts = False

    def __enter__(self) -> Counts:
        self.counts = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.counts, self.joules = False, 190.0


def measured(bundle: Bundle, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """The record of the plan `exact` on turns of 1 to 19 seconds, out of order."""
    order = [*NUMBERS[10:], *NUMBERS[:10]]

    def played(pipeline: object, turns: int, meter: EnergyMeter) -> list[TurnTrace]:
        with meter:
            return [timed(number) for number in order]

    monkeypatch.setattr(bench, "measure_turns", played)
    monkeypatch.setattr(energy, "cpu_energy", Counts)
    monkeypatch.setattr(bench, "cpu_roofline", lambda bundle, branches: Roofline(branches / 10, "a rate"))
    told = BenchOptions(settings=Preset(turns=len(order)), **options)
    pipeline = Pipeline.open(bundle, fakes.fake_engines(), "exact")
    return bench._measure(
        told, fakes.fake_engines(), pipeline, {"host_memory_peak_mib": 300.0, "first_prompt_seconds": 1}
    )


def test_record_is_of_what_was_measured(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(bundle, monkeypatch)
    assert (record["seconds_per_turn_p50"], record["seconds_per_turn_p95"]) == (10.0, 18.1)
    assert record["stages"] == {
        "predictor": {"p50": 1.0, "p95": 1.81},
        "denoiser": {"p50": 4.0, "p95": 7.24},
        "vae": {"p50": 3.0, "p95": 5.43},
    }
    assert record["seconds_to_state_p50"] == 1.0
    assert record["seconds_to_first_frame_p50"] == 7.0
    assert (record["fps"], record["real_time_factor"]) == (1.7, round(17 / 8 / 10, 3))
    assert (record["steps"], record["branches"]) == (STEPS, 2 * STEPS)
    assert record["denoiser_floor_seconds"] == 1.2 and record["ratio_to_floor"] == round(4.0 / 1.2, 3)
    assert record["energy_j_per_turn"] == 10.0
    assert record["fidelity"] == {"ssim": 0.06}
    assert (record["memory_peak_mib"], record["n"]) == (300.0, 19)


def test_trace_is_of_the_turn_in_the_middle_and_in_microseconds(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(bundle, monkeypatch, trace=tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    work = [(lanes[one["tid"]], one["ts"] / 1e6, one["dur"] / 1e6) for one in events if one["ph"] == "X"]
    steps = [("denoiser", 1 + 4 * step / STEPS, 4 / STEPS) for step in range(STEPS)]
    expected = [("predictor", 0.0, 1.0), *steps, ("vae", 5.0, 2.0), ("vae", 7.0, 3.0)]
    assert [lane for lane, *_ in work] == [lane for lane, *_ in expected]
    np.testing.assert_allclose([when for _, *when in work], [when for _, *when in expected], atol=1e-6)
    frames = [(lanes[one["tid"]], one["ts"] / 1e6) for one in events if one["ph"] == "i"]
    assert frames == [("frames", 7.0)] * 9 + [("frames", 10.0)] * 8


def test_turns_are_measured_with_a_full_window_and_metered_alone(bundle: Bundle) -> None:
    counter, noted = Counts(), list[bool]()

    class Noting(fakes.FakeDenoiser):
        def start(self, *given: Any) -> fakes.FakeDenoising:
            noted.append(counter.counts)
            return super().start(*given)

    pipeline = Pipeline.open(bundle, fakes.fake_engines(denoiser=Noting()))
    turns = bench.measure_turns(pipeline, 4, counter)
    states = [event for turn in turns for _, event in turn.marks if isinstance(event, StatePredicted)]
    window = bundle.manifest.compatibility.history_turns
    assert [state.history_turns for state in states] == [window] * 4
    # One more before them than the window holds, so that none is the first of its length.
    assert noted == [False] * (window + 1) + [True] * 4


def test_unknown_plan_is_refused_before_the_work(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_fresh_process", pytest.fail)
    told = BenchOptions(settings=Preset(str(bundle.folder), plans=("exact", "fastest")), results=bundle.folder.parent)
    with pytest.raises(PlanError, match="fastest"):
        bench.bench(told)
