"""What a reader of a GPU record relies on: errors of checks, roofline bounds, peers' turns, goals and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.gpu import checks, goals, kernels, rates, turns
from benchmarks.gpu import record as records

from animegamer_rt.backends.torch.attention import AttentionTiming
from animegamer_rt.errors import DeviceLostError

Entry = dict[str, Any]
FP8 = {"precision": {"denoiser": "fp8"}}


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


def judged(*measured: Entry) -> Mapping[str, Entry]:
    return {entry["goal"]: entry for entry in goals.goals(measured)}


def test_error_that_is_no_number_or_of_another_shape_fails() -> None:
    variant = checks.BackendVariant("cpu", "fp32")
    found = [checks.entry("an answer", variant, error) for error in (0.0, 1e-3, 2e-3, math.nan, math.inf)]
    assert [one["passed"] for one in found] == [True, True, False, False, False]
    assert [one["error"] for one in found] == [0.0, 1e-3, 2e-3, None, None]
    answer = np.ones((2, 3))
    assert checks.relative_error(answer, np.ones((2, 1))) == math.inf
    assert checks.relative_error(1.1 * answer, answer) == pytest.approx(0.1)
    assert not checks.entry("an answer", variant, checks.relative_error(answer * math.nan, answer))["passed"]


def test_check_that_breaks_fails_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(variant: Any) -> Iterator[Entry]:
        yield checks.entry("before", variant, 0.0)
        raise RuntimeError("no kernel for this")

    def goes_on(variant: Any) -> Iterator[Entry]:
        yield checks.entry("after", variant, 0.0)

    monkeypatch.setattr(checks, "groups", lambda *given: {"parts": breaks, "others": goes_on})
    job_args = {"device": "cpu", "bundle": "pocket", "precision": "fp32", "attention": "torch", "kernels": False}
    found = list(checks.entries({**job_args, "library": None}))
    assert [(one["check"], one["passed"]) for one in found] == [("before", True), ("parts", False), ("after", True)]
    assert "no kernel for this" in found[1]["broken"]
    monkeypatch.setattr(checks, "groups", lambda *given: {"parts": lost})
    with pytest.raises(DeviceLostError):
        list(checks.entries({**job_args, "library": None}))


def lost(variant: object) -> Iterator[Entry]:
    raise DeviceLostError("the GPU is lost to this process")
    yield {}


def test_error_of_a_wrong_rate_or_kernel_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.ones(4, dtype=torch.float64)
    monkeypatch.setattr(rates, "milliseconds", lambda runs, device: 2.0)

    def rate(rows: torch.Tensor) -> Entry:
        return rates.measure_rate(lambda: ([lambda: None], lambda: rows, right), 6e9, "cpu")

    assert rate(right) == {"ms_p50": 2.0, "tflops": 3.0, "error": 0.0, "allowed": 3e-2, "passed": True}
    assert [rate(right * by)["passed"] for by in (1.02, 1.04, math.nan)] == [True, False, False]
    case = kernels.Case("a kernel", "int8", (), lambda: (), lambda: ())
    codes, scales = torch.tensor([[100, -50]], dtype=torch.int8), torch.tensor([[0.5]])
    # The same numbers by other codes are equal; other scales are not.
    assert kernels.check("it", case, (codes // 2, 2 * scales), (codes, scales))["passed"]
    assert not kernels.check("it", case, (codes, 1.1 * scales), (codes, scales))["passed"]
    assert kernels.check("it", case, (codes, scales * math.nan), (codes, scales))["error"] is None


def test_attention_of_ours_has_to_beat_all_that_is_right() -> None:
    def candidates(*found: AttentionTiming) -> list[bool]:
        return [one["delete_candidate"] for one in kernels.attention_timings(found, True)]

    torchs, wrong = AttentionTiming("torch", 3.0, 0.01), AttentionTiming("flash", 1.0, 0.5)
    assert candidates(torchs, wrong, AttentionTiming("int8", 2.0, 0.01)) == [False], "what is wrong is no rival"
    assert candidates(torchs, AttentionTiming("int8", 3.5, 0.01)) == [True]
    assert candidates(torchs, AttentionTiming("int8", 1.0, 0.5)) == [True], "it is wrong itself"
    ours = AttentionTiming("int8", 2.0, 0.01)
    assert candidates(torchs, ours, AttentionTiming("int8-wgmma", 2.5, 0.01)) == [False, True]
    assert candidates(torchs, ours, AttentionTiming("int8-wgmma", 1.5, 0.01)) == [False, False]


def rate(of: str, ms: float, passed: bool = True, way: str | None = None) -> Entry:
    return {"of": of, "ms_p50": ms, "a_pair": 30, "passed": passed, "way": way}


def test_roofline_bound_counts_only_right_rates_and_the_attention_in_use() -> None:
    measured = [rate("product fp8", 0.5)] * 4
    measured += [rate("attention", 1.0, False, "flash"), rate("attention", 2.0, way="cudnn")]
    measured += [rate("attention", 3.0, way="torch"), rate("attention", 1.5, way="int8")]
    floor = records.floor_seconds
    assert floor(measured, 100, "fp8") == pytest.approx(50 * 30 * (4 * 0.5 + 2.0) / 1000)
    assert floor(measured, 100, "fp8", "torch") == pytest.approx(50 * 30 * (4 * 0.5 + 3.0) / 1000)
    assert floor(measured, 100, "fp8", "int8") == pytest.approx(50 * 30 * (4 * 0.5 + 1.5) / 1000)
    assert floor(measured, 100, "fp8", "flash") is None
    assert floor(measured, 100, "bf16") is None
    assert floor(measured[1:], 100, "fp8") is None


def peer(part: str, mode: str, seconds: float, **changes: Any) -> Entry:
    """What a job of a peer's part says."""
    said = {"part": part, "mode": mode, "library": f"{part}s 1", "p50": seconds, "p95": 2 * seconds, "n": 5}
    said |= {"pairs": 50, "device": "torch", "gpu": None, "precision": "bf16", "size": "full", "shape": [17, 480, 720]}
    return said | {"date": "2026-01-02T03:04:05+00:00", "playback_seconds": 2.125, "job": "a peer"} | changes


def peer_turns(entries: list[Entry]) -> list[Entry]:
    return records.turn_records({**dict.fromkeys(records.HEADING, ""), "peers": entries})


def test_peers_turn_is_the_sum_of_its_parts() -> None:
    eager = [peer(part, "eager", seconds) for part, seconds in (("denoiser", 9.0), ("vae", 2.0), ("predictor", 1.0))]
    (found,) = peer_turns(eager)
    assert (found["seconds_per_turn_p50"], found["seconds_per_turn_p95"]) == (12.0, 24.0)
    assert (found["peer"], found["plan"], found["steps"], found["branches"]) == ("diffusers eager", "exact", 50, 100)
    # What could not be compiled counts as it runs eagerly; but a turn whose denoiser was not is none of its own.
    _, compiled = peer_turns([*eager, peer("denoiser", "compiled", 5.0)])
    assert (compiled["peer"], compiled["seconds_per_turn_p50"]) == ("diffusers compiled", 8.0)
    assert compiled["runs_on"] == "denoiser denoisers 1 compiled, vae vaes 1 eager, predictor predictors 1 eager"
    assert len(peer_turns([*eager, peer("vae", "compiled", 1.0)])) == 1
    assert peer_turns(eager[:2]) == []


def test_what_was_not_measured_reaches_nothing() -> None:
    pocket = turn("exact", 0.1, size="pocket")
    peer = turn("exact", 0.1, peer="diffusers compiled", variant=None)
    for measured in ([], [pocket], [peer], [pocket, peer]):
        for entry in goals.goals(measured):
            assert [entry[name] for name in ("found", "reached", "gpu", "variant")] == [None] * 4, entry["goal"]
    without = judged(turn("exact", 0.1, memory_peak_mib=None))
    for name in (
        "exact in FP8, seconds",
        "exact in bf16, denoiser over its roofline bound",
        "balanced, seconds",
        "peak memory, GB",
        "exact, times as fast as diffusers eager",
    ):
        assert (without[name]["found"], without[name]["reached"]) == (None, None), name


def test_goal_is_held_to_the_best_of_its_own_plan_and_precision() -> None:
    found = judged(
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
        "exact in FP8, denoiser over its roofline bound": (1.125, True, "4.5 s"),
        "exact in bf16, denoiser over its roofline bound": (1.5, False, "6 s"),
        "balanced, seconds": (2.0, True, "2 s"),
        "fast, seconds": (1.3, False, "1.3 s"),
        "state, seconds": (0.05, True, "4 s"),
        "first frame, share of the vae's time": (0.5, True, "4.5 s"),
        "peak memory, GB": (11.5343, True, "4.5 s"),
        "exact, times as fast as diffusers eager": (3.0, True, "4 s"),
        "balanced, times as fast as diffusers eager": (6.0, True, "2 s"),
        "fast, times as fast as diffusers eager": (9.2308, False, "1.3 s"),
    }


def fast_turn(variant: str | None, plan: str, seconds: float, precision: str = "fp8", **changes: Any) -> Entry:
    """A turn at full size that reaches every goal which its seconds do not decide."""
    reaches: Entry = {"denoiser_floor_seconds": seconds / 1.1, "stages": {"denoiser": {"p50": seconds}}}
    reaches |= {"seconds_to_state_p50": 0.05, "first_frame_of_vae": 0.5, "memory_peak_mib": 9000.0}
    reaches |= {"variant": variant, "precision": {"denoiser": precision}, "memory_card_peak_mib": 9800.0}
    return turn(plan, seconds, **reaches | changes)


def played(variant: str, precision: str = "fp8", slower: float = 1.0, **changes: Any) -> list[Entry]:
    times = {"exact": 4.0, "balanced": 2.0, "fast": 1.0}
    return [fast_turn(variant, plan, slower * seconds, precision, **changes) for plan, seconds in times.items()]


PEER = fast_turn(None, "exact", 12.0, "bf16", peer="diffusers eager")


def test_goals_reached_by_several_variants_are_not_reached_by_one() -> None:
    apart = [PEER, *played("quick", memory_card_peak_mib=20000.0), *played("small", slower=1.5)]
    fp8_alone = [goal for goal in goals.goals(apart) if "bf16" not in goal["goal"]]
    assert all(goal["reached"] for goal in fp8_alone)
    fp8, bf16 = goals.best_single_variant(apart)
    assert (fp8["precision"], fp8["variant"], fp8["reached"]) == ("fp8", "quick", False)
    assert fp8["missed"] == ["peak memory, GB"] and fp8["not_measured"] == []
    assert (bf16["precision"], bf16["variant"], bf16["reached"]) == ("bf16", None, None)
    assert len(bf16["not_measured"]) == 10
    fp8, _ = goals.best_single_variant([*apart, *played("both")])
    assert (fp8["variant"], fp8["reached"], fp8["missed"], fp8["gpu"]) == ("both", True, [], "a card")
    fp8, _ = goals.best_single_variant([*played("both")])
    assert fp8["reached"] is None and len(fp8["not_measured"]) == 3, "without the baseline it is not known"


@pytest.mark.parametrize("attention", ["int8", "int8-wgmma"])
def test_bf16_with_int8_scores_reaches_no_goal_of_bf16(attention: str) -> None:
    rounded = [PEER, *played("rounded", "bf16", attention=attention)]
    held = {goal["goal"]: goal for goal in goals.goals(rounded)}
    assert held["exact in bf16, seconds"]["found"] is None
    assert held["exact in bf16, denoiser over its roofline bound"]["found"] is None
    assert held["balanced, seconds"]["attention"] == attention, "a goal of no precision takes any, and says which"
    assert goals.best_single_variant(rounded)[1]["variant"] is None
    exact = [*rounded, *played("exact", "bf16", slower=1.1, attention="cudnn")]
    found = {goal["goal"]: goal for goal in goals.goals(exact)}["exact in bf16, seconds"]
    assert (found["found"], found["variant"], found["attention"]) == (4.4, "exact", "cudnn")
    assert (
        goals.best_single_variant(exact)[1]["variant"] == "exact"
        and goals.best_single_variant(exact)[1]["attention"] == "cudnn"
    )
    in_fp8 = goals.goals(played("rounded", attention=attention))
    assert in_fp8[0]["attention"] == attention and in_fp8[0]["reached"], "FP8's bound uses the attention in use"


def test_memory_is_what_the_card_lacked_where_that_is_more_than_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
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
    result = judged(fast_turn("a", "exact", 4.0, **found))["peak memory, GB"]
    assert result["found"] == round(12 * gib / 1e9, 4) and result["reached"] is False
    assert goals.memory_gb({"memory_peak_mib": None}) is None
