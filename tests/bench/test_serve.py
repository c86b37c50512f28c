"""`bench serve`: a whole run on a tiny bundle, its figures and how they are shown. No figure of time is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import own_parts
import pytest
import tiny_reader

import fakes
from animegamer_bench import serve as run
from animegamer_bench.player import ServerProcess, TurnTiming
from animegamer_bench.records import read_records
from animegamer_bench.serve import bench_serve
from animegamer_rt.errors import ServerError
from animegamer_rt.serving.wire.codec import Message


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a reader of everyday words and a plan with parts of its own, as the shipped one."""
    tiny = fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny")
    return own_parts.add_plan(tiny_reader.add_reader(tiny)).folder


@pytest.fixture(scope="module")
def results(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one run leaves, as small as it can be."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "PLAYER_COUNTS", (1, 3))
        patch.setattr(run, "PLAYER_COUNTS_COMPUTED", (1, 2))
        patch.setattr(run, "FAST", "balanced")
        patch.setattr(run, "WINDOW_FULL", 1)
        assert bench_serve(str(bundle), "exact", 1, folder, turn_s=0.01) == 0
    return folder


@pytest.fixture
def record(results: Path) -> dict[str, Any]:
    (found,) = read_records(results, "wire")
    return found


def test_record_says_where_and_of_what_it_is(record: dict[str, Any], results: Path) -> None:
    assert (record["kind"], record["size"], record["plan"], record["turns"]) == ("wire", "tiny", "exact", 1)
    assert record["machine"] and record["commit"] and record["date"].endswith("+00:00")
    assert {"python", "animegamer-rt", "pyzmq", "msgpack", "numpy"} <= set(record["software"])
    assert read_records(results) == [], "a record of the wire is taken for one of turns"


def test_every_figure_is_there_with_its_samples(record: dict[str, Any]) -> None:
    sizes = [("tiny", [17, 16, 24]), ("full-size", [17, 480, 720])]
    assert [(entry["size"], entry["shape"]) for entry in record["overhead"]] == sizes
    assert all(entry["overhead_s"]["n"] == 1 for entry in record["overhead"])
    assert all(entry["first_frame_s"]["p50"] > entry["state_s"]["p50"] > 0 for entry in record["overhead"])
    codecs = [(entry["size"], entry["codec"]) for entry in record["transfer"]]
    assert codecs == [(size, codec) for size, _ in sizes for codec in ("raw", "jpeg", "mp4")]
    crowds = [(entry["engines"], entry["sessions"], entry["interval_s"]["n"]) for entry in record["crowd"]]
    assert crowds[:2] == [("simulated:0.01", 1, 1), ("simulated:0.01", 3, 5)]
    assert crowds[2:] == [("cpu", 1, 1), ("cpu", 2, 3), ("cpu", 1, 1), ("cpu", 2, 3), ("cpu", 2, 3)]
    plans = [entry["plans"] for entry in record["crowd"][2:]]
    assert plans == [["exact"], ["exact"], ["balanced"], ["balanced"], ["exact", "balanced"]]
    assert all(0 <= entry["goodput"] <= 1 and entry["deadline_s"] == 2.125 for entry in record["crowd"])
    assert all(entry["turn_s"]["p50"] >= entry["first_frame_s"]["p50"] for entry in record["crowd"])
    cancelled = [(entry["cancel_s"] or {"n": 0})["n"] + entry["done_first"] for entry in record["cancel"]]
    assert cancelled == [1, 1], "a turn that was cancelled has not ended"


def test_a_turns_figures_are_between_its_events() -> None:
    turn = TurnTiming(10.0)
    seconds = {"queue": 0.1, "predictor": 0.5, "denoiser": 1.0, "vae": 0.25, "total": 1.9}
    events = [("state", 10.6, ()), ("progress", 11.0, ()), ("progress", 11.7, ())]
    events += [("frame", 11.9, (bytes(10),)), ("frame", 12.0, (bytes(10),)), ("done", 12.1, ())]
    for type, at, buffers in events:
        turn.note(Message(type, {"seconds": seconds} if type == "done" else {}, buffers=buffers), at)
    assert turn.bytes == 20
    found = turn.figures()
    times = ("turn_s", "engines_s", "overhead_s", "outside_s", "state_s", "state_overhead_s", "first_frame_s", "clip_s")
    assert [found[name] for name in times] == pytest.approx([2.1, 1.75, 0.35, 0.2, 0.6, 0.1, 1.9, 0.3])


def test_server_that_cannot_start_is_said(tmp_path: Path) -> None:
    served = ServerProcess(tmp_path / "no-bundle", "simulated:0", tmp_path / "state")
    with pytest.raises(ServerError, match="did not start.*no bundle"), served:
        raise AssertionError("it started")
