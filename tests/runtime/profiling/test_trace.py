"""A turn on a clock, and two records side by side."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fakes
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.cli import main
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


def test_bench_traces_its_median_turn(pipeline: Pipeline, tmp_path: Path) -> None:
    arguments = ["bench", "--bundle", str(pipeline.bundle.folder), "--turns", "3", "--results", str(tmp_path)]
    assert main([*arguments, "--trace", str(tmp_path / "trace.json")]) == 0  # where records are read from, too
    assert (tmp_path / "trace.json").is_file()
    assert main([*arguments, "--plan", "exact", "--trace", str(tmp_path / "traces" / "turn.json")]) == 0
    assert (tmp_path / "traces" / "turn.json").is_file()
    assert len(list(tmp_path.glob("*-tiny-*.json"))) == 2
    (path,) = tmp_path.glob("*-tiny-exact.json")
    record = json.loads(path.read_text())
    assert 0 < record["seconds_to_state_p50"] < record["seconds_to_first_frame_p50"] <= record["seconds_per_turn_p95"]
    assert record["real_time_factor"] == pytest.approx(
        record["playback_seconds"] / record["seconds_per_turn_p50"], abs=1e-3
    )


def test_two_records_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "plan": "exact",
        "commit": "aa",
        "seconds_per_turn_p50": 2.0,
        "stages": {"vae": {"p50": 0.5, "p95": 0.6}},
    }
    (tmp_path / "a.json").write_text(json.dumps({**record, "energy_j_per_turn": 80.0}))
    (tmp_path / "b.json").write_text(json.dumps({**record, "plan": "fast", "seconds_per_turn_p50": 1.0}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    shown = capsys.readouterr().out
    assert "0.50" in shown and "plan: A exact; B fast" in shown and "commit" not in shown
    assert "energy" not in shown, "only one of them has it"
    assert [line for line in shown.splitlines() if "vae p50" in line and line.count("0.500") == 2]
    assert shown.count("not measured") == 2
    (tmp_path / "b.json").write_text(
        json.dumps({**record, "plan": "fast", "fidelity": {"ssim": 0.9274, "psnr_db": 26.5}})
    )
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"ssim .*the reference .*0\.927", shown) and re.search(r"psnr_db .*the reference .*26\.5", shown)
    assert main(["bench", "compare", str(tmp_path / "a.json")]) == 2
    assert main(["bench", "turn", str(tmp_path / "a.json")]) == 2
    assert "only `bench compare` takes records" in capsys.readouterr().err
    (tmp_path / "b.json").write_text(json.dumps({**record, "energy_j_per_turn": 20.0}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "energy_j_per_turn" in (shown := capsys.readouterr().out) and "0.25" in shown
    for name, attention in (("a", "flash"), ("b", "int8")):
        (tmp_path / f"{name}.json").write_text(json.dumps({**record, "attention": attention}))
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "attention: A flash; B int8" in capsys.readouterr().out
    (tmp_path / "a.json").write_text(json.dumps(record))  # as records were before they said it
    assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert "attention: A None; B int8" in capsys.readouterr().out
    for spoilt in (
        "[]",
        "{}",
        json.dumps({**record, "seconds_per_turn_p50": "x"}),
        json.dumps({**record, "stages": 1}),
    ):
        (tmp_path / "b.json").write_text(spoilt)
        assert main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
        assert "b.json: not a record of turns" in capsys.readouterr().err
