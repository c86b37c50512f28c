"""What a reader of a GPU record relies on: errors of checks, roofline bounds, peers' turns and memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.gpu import checks, rates
from benchmarks.gpu import record as records

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


def test_a_rate_whose_answer_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.ones(4, dtype=torch.float64)
    monkeypatch.setattr(rates, "milliseconds", lambda *given: 2.0)

    def rate(rows: torch.Tensor) -> Entry:
        return rates.measure_rate(lambda: ([lambda: None], lambda: rows, right), 6e9, "cpu")

    assert rate(right) == {"ms_p50": 2.0, "tflops": 3.0, "error": 0.0, "allowed": 3e-2, "passed": True}
    assert rate(right * math.nan)["error"] is None
    assert [rate(right * by)["passed"] for by in (1.02, 1.04, math.nan)] == [True, False, False]


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
