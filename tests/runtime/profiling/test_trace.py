"""A turn on a clock, and two records side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fakes
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling.trace import TurnTrace, trace_turn, write_trace
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    bundle = fakes.write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")
    return Pipeline.open(bundle, open_engines(bundle), "exact")


@pytest.fixture
def turn(pipeline: Pipeline) -> TurnTrace:
    return trace_turn(pipeline.run_turn(Session.start(pipeline.bundle, seed=1), Instruction.parse("Mia waves.")))


def test_spans_cover_the_turn_without_overlap(turn: TurnTrace, pipeline: Pipeline) -> None:
    spans = turn.spans(pipeline.plan)
    assert [span.lane for span in spans[:7]] == ["predictor"] + ["denoiser"] * 6
    assert spans[1].name == f"pair at {pipeline.plan.steps[0].timestep}"
    assert spans[7].lane == "vae" and spans[7].name == "frames from 0"
    for before, after in zip(spans, spans[1:], strict=False):
        assert after.start >= before.start + before.seconds - 1e-9
    assert 0 < turn.to_state == spans[0].seconds
    assert turn.to_state < turn.to_first_frame <= turn.marks[-1][0]
    assert turn.done.seconds.total <= turn.marks[-1][0]


def test_the_trace_is_one_that_viewers_read(turn: TurnTrace, pipeline: Pipeline, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "turn.json", turn, pipeline.plan, "A & B")
    events = json.loads(path.read_text())["traceEvents"]
    work = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in work} == {"predictor", "denoiser", "vae"}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 and event["pid"] == 1 for event in work)
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {lanes[event["tid"]] for event in work} == {"predictor", "denoiser", "vae"}
    assert sum(event["ph"] == "i" for event in events) == 17
