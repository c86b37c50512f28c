"""The goals of a GPU run, and its records of turns: each figure from where it must come, and none from nothing."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
from project import ROOT

Entry = dict[str, Any]


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.goals")


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.record")


def turn(plan: str, seconds: float, **changes: Any) -> Entry:
    """A record of turns at full size, in bf16 where nothing else is said."""
    stages = {name: {"p50": seconds / 2, "p95": seconds} for name in ("predictor", "denoiser", "vae")}
    record = {
        "size": "full",
        "plan": plan,
        "peer": None,
        "variant": f"{seconds:g} s",
        "precision": {"denoiser": "bf16"},
        "gpu": {"name": "a card"},
        "attention": "torch",
        "seconds_per_turn_p50": seconds,
        "stages": stages,
        "denoiser_floor_seconds": None,
        "memory_peak_mib": 20000.0,
        "seconds_to_state_p50": 0.5,
        "first_frame_of_vae": 0.9,
    }
    return record | changes


FP8 = {"precision": {"denoiser": "fp8"}}


def held(goals: ModuleType, *turns: Entry) -> Mapping[str, Entry]:
    return {entry["goal"]: entry for entry in goals.goals(turns)}


def test_what_was_not_measured_reaches_nothing(goals: ModuleType) -> None:
    pocket = turn("exact", 0.1, size="pocket")
    peer = turn("exact", 0.1, peer="diffusers compiled", variant=None)
    for turns in ([], [pocket], [peer], [pocket, peer]):
        for entry in goals.goals(turns):
            assert [entry[name] for name in ("found", "reached", "gpu", "variant")] == [None] * 4, entry["goal"]
    without = held(goals, turn("exact", 0.1, memory_peak_mib=None))
    for name in (
        "exact in FP8, seconds",
        "exact in bf16, denoiser over its floor",
        "balanced, seconds",
        "peak memory, GB",
        "exact, times as fast as diffusers eager",
    ):
        assert (without[name]["found"], without[name]["reached"]) == (None, None), name


def test_goal_is_held_to_the_best_of_its_own_plan_and_precision(goals: ModuleType) -> None:
    found = held(
        goals,
        turn("exact", 4.0, **FP8, denoiser_floor_seconds=1.6, seconds_to_state_p50=0.05),
        turn("exact", 4.5, **FP8, denoiser_floor_seconds=2.0, memory_peak_mib=11000.0, first_frame_of_vae=0.5),
        turn("exact", 6.0, denoiser_floor_seconds=2.0),
        turn("balanced", 3.0),
        turn("balanced", 2.0, **FP8),
        turn("balanced", 2.5),
        turn("fast", 1.3),
        turn("exact", 0.1, peer="diffusers compiled", variant=None),
        turn("exact", 12.0, peer="diffusers eager", variant=None),
    )
    reached = {name: (entry["found"], entry["reached"], entry["variant"]) for name, entry in found.items()}
    assert reached == {
        "exact in FP8, seconds": (4.0, True, "4 s"),
        "exact in bf16, seconds": (6.0, False, "6 s"),
        "exact in FP8, denoiser over its floor": (1.125, True, "4.5 s"),
        "exact in bf16, denoiser over its floor": (1.5, False, "6 s"),
        "balanced, seconds": (2.0, True, "2 s"),
        "fast, seconds": (1.3, False, "1.3 s"),
        "state after, seconds": (0.05, True, "4 s"),
        "first frame, of the vae's time": (0.5, True, "4.5 s"),
        "peak memory, GB": (11.5343, True, "4.5 s"),
        "exact, times as fast as diffusers eager": (3.0, True, "4 s"),
        "balanced, times as fast as diffusers eager": (6.0, True, "2 s"),
        "fast, times as fast as diffusers eager": (9.2308, False, "1.3 s"),
    }


def entry(plan: str, size: str = "full", precision: str = "bf16", attention: str = "torch") -> Entry:
    """What a job of turns says."""
    said = turn(plan, 8.0, size=size, attention=attention, shape=[17, 480, 720], branches=100, precision={})
    del said["denoiser_floor_seconds"]
    return said | {"job": "a job", "precision": {"denoiser": precision}}


def peer(part: str, mode: str, seconds: float, **changes: Any) -> Entry:
    """What a job of a peer's part says."""
    said = {"part": part, "mode": mode, "library": f"{part}s 1", "p50": seconds, "p95": 2 * seconds, "n": 5}
    said |= {"pairs": 50, "device": "torch", "gpu": None, "precision": "bf16", "size": "full", "shape": [17, 480, 720]}
    return said | {"date": "2026-01-02T03:04:05+00:00", "playback_seconds": 2.125, "job": "a peer"} | changes


RATES = [
    *({"of": f"product {kind}", "ms_p50": ms, "a_pair": 30, "passed": True} for ms, kind in ((1.0, "bf16"),) * 4),
    *(
        {"of": "attention", "way": way, "ms_p50": ms, "a_pair": 30, "passed": True}
        for way, ms in (("torch", 6.0), ("flash", 4.0))
    ),
]


def turns(records: ModuleType, *, said: list[Entry], peers: list[Entry] | None = None) -> list[Entry]:
    heading = dict.fromkeys(records.HEADING, "")
    found: list[Entry] = records.turn_records({**heading, "turns": said, "peers": peers or [], "rates": RATES})
    return found


def test_floor_is_of_full_size_and_of_the_attention_in_use(records: ModuleType) -> None:
    said = [
        entry("exact"),
        entry("exact", attention="flash"),
        entry("exact", "pocket"),
        entry("exact", precision="fp8"),
    ]
    floors = [one["denoiser_floor_seconds"] for one in turns(records, said=said)]
    assert floors == [50 * 30 * (4 + 6) / 1000, 50 * 30 * (4 + 4) / 1000, None, None]
    first, *_, unknown = turns(records, said=said)
    assert first["ratio_to_floor"] == round(4.0 / 15.0, 3) and first["floor_source"] and first["fps"] == 2.125
    assert unknown["ratio_to_floor"] is None and unknown["floor_source"] is None
    assert records.floor_seconds(RATES, 100, "fp16", "torch") == 15.0, "halves of either kind have one rate"
    unsaid = [{name: value for name, value in rate.items() if name != "passed"} for rate in RATES]
    assert records.floor_seconds(unsaid, 100, "bf16") is None, "a rate of which nobody says that it is right"


def test_peers_turn_is_the_sum_of_its_parts(records: ModuleType) -> None:
    eager = [peer(part, "eager", seconds) for part, seconds in (("denoiser", 9.0), ("vae", 2.0), ("predictor", 1.0))]
    (found,) = turns(records, said=[], peers=eager)
    assert (found["seconds_per_turn_p50"], found["seconds_per_turn_p95"]) == (12.0, 24.0)
    assert (found["peer"], found["plan"], found["steps"], found["branches"]) == ("diffusers eager", "exact", 50, 100)
    assert found["denoiser_floor_seconds"] == 50 * 30 * (4 + 4) / 1000
    # What could not be compiled counts as it runs eagerly; but a turn whose denoiser was not is none of its own.
    _, compiled = turns(records, said=[], peers=[*eager, peer("denoiser", "compiled", 5.0)])
    assert (compiled["peer"], compiled["seconds_per_turn_p50"]) == ("diffusers compiled", 8.0)
    assert compiled["runs_on"] == "denoiser denoisers 1 compiled, vae vaes 1 eager, predictor predictors 1 eager"
    assert len(turns(records, said=[], peers=[*eager, peer("vae", "compiled", 1.0)])) == 1
    assert turns(records, said=[], peers=eager[:2]) == []
