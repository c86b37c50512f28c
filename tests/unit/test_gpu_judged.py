"""What a GPU run's figures are judged by: the goals' numbers, one variant for all of them, what a field means."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
import torch

import house

Entry = dict[str, Any]


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(house.ROOT)
    return importlib.import_module("benchmarks.gpu_goals")


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(house.ROOT)
    return importlib.import_module("benchmarks.gpu_turns")


def record(variant: str | None, plan: str, seconds: float, precision: str = "fp8", **changes: Any) -> Entry:
    """A turn at full size that reaches every goal which its seconds do not decide."""
    return {
        "size": "full",
        "plan": plan,
        "peer": None,
        "variant": variant,
        "precision": {"denoiser": precision},
        "attention": "torch",
        "gpu": {"name": "a card"},
        "seconds_per_turn_p50": seconds,
        "stages": {"denoiser": {"p50": seconds}},
        "denoiser_floor_seconds": seconds / 1.1,
        "seconds_to_state_p50": 0.05,
        "first_frame_of_vae": 0.5,
        "memory_peak_mib": 9000.0,
        "memory_card_peak_mib": 9800.0,
        **changes,
    }


def played(variant: str, precision: str = "fp8", slower: float = 1.0, **changes: Any) -> list[Entry]:
    times = {"exact": 4.0, "balanced": 2.0, "fast": 1.0}
    return [record(variant, plan, slower * seconds, precision, **changes) for plan, seconds in times.items()]


PEER = record(None, "exact", 12.0, "bf16", peer="diffusers eager")


def test_goals_reached_by_several_variants_are_not_reached_by_one(goals: ModuleType) -> None:
    apart = [PEER, *played("quick", memory_card_peak_mib=20000.0), *played("small", slower=1.5)]
    fp8_alone = [goal for goal in goals.goals(apart) if "bf16" not in goal["goal"]]
    assert all(goal["reached"] for goal in fp8_alone)
    fp8, bf16 = goals.together(apart)
    assert (fp8["precision"], fp8["variant"], fp8["reached"]) == ("fp8", "quick", False)
    assert fp8["missed"] == ["peak memory, GB"] and fp8["not_measured"] == []
    assert (bf16["precision"], bf16["variant"], bf16["reached"]) == ("bf16", None, None)
    assert len(bf16["not_measured"]) == 10
    fp8, _ = goals.together([*apart, *played("both")])
    assert (fp8["variant"], fp8["reached"], fp8["missed"], fp8["gpu"]) == ("both", True, [], "a card")
    fp8, _ = goals.together([*played("both")])
    assert fp8["reached"] is None and len(fp8["not_measured"]) == 3, "no yardstick, no judgement"


def test_every_goal_is_said_also_one_that_was_not_measured(goals: ModuleType) -> None:
    measured = [PEER, *played("quick", memory_card_peak_mib=20000.0)]
    said = goals.lines(goals.goals(measured), goals.together(measured))
    assert len(said) == len(goals.GOALS) + 2
    assert "reached      exact in FP8, seconds: 4.0, by quick, torch attention (at most 4.2)" in said
    assert "missed       peak memory, GB: 20.9715, by quick, torch attention (at most 12.0)" in said
    assert "not measured exact in bf16, seconds: nothing (at most 5.6)" in said
    assert "missed       all of fp8 by one variant: quick, torch attention; misses peak memory, GB" in said
    assert "not measured all of bf16 by one variant" in said


def test_memory_is_what_the_card_lacked_where_that_is_more_than_torch_counts(
    goals: ModuleType, turns: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    gib = 2**30
    counts = {"max_memory_reserved": 11 * gib, "memory_reserved": 10 * gib, "max_memory_allocated": 9 * gib}
    for name, count in counts.items():
        monkeypatch.setattr(torch.cuda, name, lambda count=count: count)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (69 * gib, 80 * gib))
    found = turns.memory()
    # Of 11 GiB that the card lacks now torch holds 10, and it once held one more.
    assert found == {
        "memory_peak_mib": 11 * 1024.0,
        "memory_allocated_peak_mib": 9 * 1024.0,
        "memory_card_peak_mib": 12 * 1024.0,
    }
    (judged,) = (goal for goal in goals.goals([record("a", "exact", 4.0, **found)]) if "memory" in goal["goal"])
    assert judged["found"] == round(12 * gib / 1e9, 4) and judged["reached"] is False
    assert goals.memory_gb({"memory_peak_mib": None}) is None


def test_card_of_12_gb_holds_the_context_too(turns: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(79.5e9), int(80e9)))
    for allowed in (12, 90, 0.4):
        turns.allow(allowed)
    assert shares == [pytest.approx(11.5 / 80), 1.0, 0.0]
