"""What a reader of a GPU record relies on: errors of checks, roofline bounds, peers' turns and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.gpu import checks, jobs, parts, rates
from benchmarks.gpu import record as records

from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import BackendError, DeviceLostError

Entry = dict[str, Any]


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


def test_error_after_which_the_gpu_goes_on_ends_no_job() -> None:
    for code, goes_on in ((901, True), (2, True), (700, False), (None, False)):
        error = torch.AcceleratorError("CUDA error: this and that")
        if code is not None:
            error.error_code = code

        def breaks(error: Exception = error) -> rates.Prepared:
            raise error

        if goes_on:
            assert "this and that" in rates.measure_rate(breaks, 1.0, "cpu")["broken"]
        else:
            with pytest.raises(torch.AcceleratorError):
                rates.measure_rate(breaks, 1.0, "cpu")


def lost(variant: object) -> Iterator[Entry]:
    raise DeviceLostError("the GPU is lost to this process")
    yield {}


def test_fp8_that_runs_as_bf16_passes_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = SimpleNamespace(precision={"denoiser": "bf16"}, device="bf16 in place of fp8")
    monkeypatch.setattr(checks.backend, "load", lambda *given, **options: engines)
    assert checks.BackendVariant("cuda", "bf16").open(open_bundle("pocket")) is engines
    with pytest.raises(BackendError, match="does not run in fp8; found bf16 in place of fp8"):
        checks.BackendVariant("cuda", "fp8").open(open_bundle("pocket"))


def test_a_rate_whose_answer_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.ones(4, dtype=torch.float64)
    monkeypatch.setattr(rates, "milliseconds", lambda *given: 2.0)

    def rate(rows: torch.Tensor) -> Entry:
        return rates.measure_rate(lambda: ([lambda: None], lambda: rows, right), 6e9, "cpu")

    assert rate(right) == {"ms_p50": 2.0, "tflops": 3.0, "error": 0.0, "allowed": 3e-2, "passed": True}
    assert rate(right * math.nan)["error"] is None
    assert [rate(right * by)["passed"] for by in (1.02, 1.04, math.nan)] == [True, False, False]


def test_a_rate_is_that_of_a_card_that_has_slowed_down_to_its_power_limit() -> None:
    burst = iter([10.0] * 50 + [15.0] * 1000)
    assert rates.sustained(lambda: next(burst), rates.SUSTAINED_MS) == 15.0
    assert len(list(burst)) < 1000


def test_a_limit_of_12_gb_leaves_room_for_the_context_and_for_libraries_that_load_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (79_400_000_000, 80_000_000_000))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    parts.limit_memory(12.0)
    assert limits == [pytest.approx(11.0 / 80.0)]


def test_the_goals_variants_are_timed_first_and_profiled_before_peers() -> None:
    names = [(job.stage, job.name) for job in jobs.jobs("cuda", ["full"], jobs.PLANS, lambda variant: True)]
    order = [job for job in names if job[0] in ("turns", "profile", "peers")]
    assert order[0] == ("turns", "full-fp8-kernels-int8-wgmma-attention")
    assert order[1] == ("turns", "full-bf16-kernels-wgmma-attention")
    assert {stage for stage, _ in order[2:4]} == {"profile"}
    assert len(names) == len(set(names)) and ("peers", "compiled-predictor") not in names


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
    assert (found["seconds_per_turn_p50"], found["seconds_per_turn_p95"]) == (12.0, None)
    assert (found["peer"], found["plan"], found["steps"], found["network_rows"]) == (
        "diffusers eager",
        "exact",
        50,
        100,
    )
    # What could not be compiled counts as it runs eagerly; but a turn whose denoiser was not is none of its own.
    _, compiled = peer_turns([*eager, peer("denoiser", "compiled", 5.0)])
    assert (compiled["peer"], compiled["seconds_per_turn_p50"]) == ("diffusers compiled", 8.0)
    assert compiled["runs_on"] == "denoiser denoisers 1 compiled, vae vaes 1 eager, predictor predictors 1 eager"
    assert len(peer_turns([*eager, peer("vae", "compiled", 1.0)])) == 1
    assert peer_turns(eager[:2]) == []
