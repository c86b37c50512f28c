"""The checks and rates of a GPU run: what is wrong, broken or no number passes none of them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from project import ROOT

from animegamer_rt.backends.torch.attention import AttentionTiming
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, DeviceLostError

Entry = dict[str, Any]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(ROOT)
    torch.set_num_threads(1)
    return lambda name: importlib.import_module(f"benchmarks.gpu.{name}")


@pytest.fixture
def checks(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("checks")


@pytest.fixture
def rates(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("rates")


@pytest.fixture
def kernels(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("kernels")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle("pocket")


def test_error_that_is_no_number_or_of_another_shape_fails(checks: ModuleType) -> None:
    way = checks.Way("cpu", "fp32")
    found = [checks.entry("an answer", way, error) for error in (0.0, 1e-3, 2e-3, math.nan, math.inf)]
    assert [one["passed"] for one in found] == [True, True, False, False, False]
    assert [one["error"] for one in found] == [0.0, 1e-3, 2e-3, None, None]
    answer = np.ones((2, 3))
    assert checks.relative(answer, np.ones((2, 1))) == math.inf
    assert checks.relative(1.1 * answer, answer) == pytest.approx(0.1)
    assert not checks.entry("an answer", way, checks.relative(answer * math.nan, answer))["passed"]


def test_check_that_breaks_fails_and_the_others_go_on(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(way: object) -> Iterator[Entry]:
        yield checks.entry("before", way, 0.0)
        raise RuntimeError("no kernel for this")

    def goes_on(way: object) -> Iterator[Entry]:
        yield checks.entry("after", way, 0.0)

    monkeypatch.setattr(checks, "groups", lambda *given: {"parts": breaks, "others": goes_on})
    asked = {"device": "cpu", "bundle": "pocket", "precision": "fp32", "attention": "torch", "kernels": False}
    found = list(checks.entries({**asked, "library": None}))
    assert [(one["check"], one["passed"]) for one in found] == [("before", True), ("parts", False), ("after", True)]
    assert "no kernel for this" in found[1]["broken"]
    monkeypatch.setattr(checks, "groups", lambda *given: {"parts": lost})
    with pytest.raises(DeviceLostError):
        list(checks.entries({**asked, "library": None}))


def lost(way: object) -> Iterator[Entry]:
    raise DeviceLostError("the GPU is lost to this process")
    yield {}


def test_what_is_checked_of_a_way_is_all_that_it_can_change(checks: ModuleType, bundle: Bundle) -> None:
    library, graphs = Path("kernels.so"), {"graphs", "no waiting"}
    recorded = {"recorded step", "parts"}
    for way, expected in (
        (checks.Way("cuda", "bf16"), recorded | graphs | {"recorded clip"}),
        (checks.Way("cuda", "fp8"), recorded | {"recorded clip"}),
        (checks.Way("cpu", "bf16"), recorded | {"recorded clip"}),
        (checks.Way("cuda", "bf16", library), recorded | graphs),
        (checks.Way("cuda", "bf16", library, "int8"), {"parts"} | graphs),
        (checks.Way("cuda", "bf16", library, "fastest"), {"fastest attention", "parts"}),
    ):
        assert checks.groups(bundle, way).keys() == expected, way


def test_way_opens_what_it_names(checks: ModuleType, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(checks.backend, "load", lambda *given, **options: asked.append((given[1:], options)))
    checks.Way("cuda", "fp8").open(bundle)
    checks.Way("cuda", "bf16", Path("a.so"), "int8").open(bundle, "turn")
    assert asked == [
        ((EngineConfig("torch", "fp8", "torch"),), {"graphs": "step", "kernels": False}),
        ((EngineConfig("torch", "bf16", "int8"),), {"graphs": "turn", "kernels": Path("a.so")}),
    ]


def test_every_answer_is_held_against_one_from_elsewhere(
    checks: ModuleType, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("predictor.shot", "denoiser.latent", "vae.next")
    expected = {name: np.full((2, 2), 4.0) for name in names}
    rounds: list[object] = []

    def answers(bundle: Bundle, engines: object) -> Iterator[tuple[str, Any]]:
        rounds.append(engines)
        for name, values in expected.items():
            # The first round runs plainly, the second by graphs, whose last answer is wrong.
            yield name, values * (1.5 if name == names[2] and len(rounds) == 2 else 1.0)

    monkeypatch.setattr(checks, "answers", answers)
    monkeypatch.setattr(checks, "answers_elsewhere", lambda bundle: (expected, "another"))
    monkeypatch.setattr(checks.Way, "open", lambda way, bundle: "ours")
    found = list(checks.against(bundle, checks.Way("cuda", "bf16")))
    assert [(one["check"], one["passed"]) for one in found] == [
        ("predictor.shot against another", True),
        ("denoiser.latent against another", True),
        ("vae.next against another", False),
    ]


def test_graphs_are_held_to_the_bytes_of_running_eagerly_once_they_are_replayed(
    checks: ModuleType, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {"off": 0, "step": 0, "turn": 0}

    def answers(bundle: Bundle, mode: str) -> Iterator[tuple[str, Any]]:
        rounds[mode] += 1
        yield "same", np.ones(4)
        yield "other", np.ones(4) + (1e-7 if mode == "turn" and rounds[mode] == 3 else 0.0)

    monkeypatch.setattr(checks, "answers", answers)
    monkeypatch.setattr(checks.Way, "open", lambda way, bundle, graphs: graphs)
    found = list(checks.same_under_graphs(bundle, checks.Way("cuda", "bf16")))
    assert [(one["check"].split()[3], one["passed"]) for one in found] == [("step", True), ("turn", False)]
    # Plainly, captured, replayed.
    assert rounds == {"off": 1, "step": 3, "turn": 3}


def test_step_that_waits_for_the_gpu_fails(checks: ModuleType, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def start(*given: object) -> Any:
        def step(*given: object) -> None:
            if modes[-1:] == ["error"] and waits:
                raise RuntimeError("called a synchronizing CUDA operation")

        return SimpleNamespace(step=step, latent=lambda: None)

    engines = SimpleNamespace(denoiser=SimpleNamespace(start=start))
    monkeypatch.setattr(checks.Way, "open", lambda way, bundle: engines)
    for waits in (False, True):
        (found,) = checks.no_waiting(bundle, checks.Way("cuda", "bf16"))
        assert found["passed"] is not waits and ("synchronizing" in found["waited"]) is waits
        assert modes[-2:] == ["error", "default"]


def test_recorded_step_in_8_bits_is_of_products_in_8_bits(checks: ModuleType) -> None:
    errors = {}
    for precision in ("fp32", "bf16", "fp8", "int8"):
        (found,) = checks.recorded_step(checks.Way("cpu", precision))
        assert found["passed"], precision
        errors[precision] = found["error"]
    assert errors["fp32"] < 1e-5 < errors["bf16"] < min(errors["fp8"], errors["int8"])


def test_rate_of_a_wrong_answer_is_none(rates: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.ones(4, dtype=torch.float64)

    def rated(rows: torch.Tensor) -> Entry:
        found: Entry = rates.rated(lambda: ([lambda: None], lambda: rows, right), 6e9, "cpu")
        return found

    monkeypatch.setattr(rates, "milliseconds", lambda runs, device: 2.0)
    assert rated(right) == {"ms_p50": 2.0, "tflops": 3.0, "error": 0.0, "allowed": 3e-2, "passed": True}
    assert [rated(right * by)["passed"] for by in (1.02, 1.04, math.nan)] == [True, False, False]

    def breaks(error: Exception) -> Callable[[], Any]:
        def make() -> Any:
            raise error

        return make

    for error in (RuntimeError("no such product"), BackendError("refused")):
        found = rates.rated(breaks(error), 1.0, "cpu")
        assert found["passed"] is False and str(error) in found["broken"]
    for gone in (DeviceLostError("the GPU is lost"), torch.AcceleratorError("CUDA error")):
        with pytest.raises(type(gone)):
            rates.rated(breaks(gone), 1.0, "cpu")


def test_answer_that_is_held_is_that_of_what_is_timed(rates: ModuleType) -> None:
    given, expected = torch.ones(2, 2, 100, 8), torch.full((64, 8), 4.0)
    _, rows, held = rates._products(lambda x, weight: (lambda: 3 * x, expected), [given[0, 0]] * 2, given)
    assert torch.equal(rows(), torch.full((64, 8), 3.0)) and held is expected
    _, rows, held = rates._attention(lambda: 5 * given, expected)
    assert torch.equal(rows(), torch.full((64, 8), 5.0)) and held is expected


def test_work_that_is_rated_is_all_of_a_guided_pair(rates: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, tuple[float, bool]] = {}

    def rated(make: Callable[[], Any], work: float, device: str) -> Entry:
        _, rows, expected = make()
        found = rows().double()
        return {"work": work, "right": bool((found - expected).norm() <= 3e-2 * expected.norm())}

    monkeypatch.setattr(rates, "rated", rated)
    shape = rates.Shape(tokens=80, hidden=128, heads=2, layers=3)
    for one in (*rates.products(shape, "cpu"), *rates.attention(shape, "cpu", None)):
        assert one["a_pair"] == 3
        seen[one["what"]] = one["work"], one["right"]
    widths = {"qkv": 3, "output": 1, "mlp_in": 4, "mlp_out": 4}
    assert seen == {
        **{
            f"{name} {kind}": (2.0 * 160 * 128 * wide * 128, True)
            for name, wide in widths.items()
            for kind in ("bf16", "fp8", "int8")
        },
        "attention torch": (2 * 2 * 2.0 * 2 * 80 * 80 * 64, True),
    }


def case(kernels: ModuleType, milliseconds: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> Entry:
    """What is said of a kernel, by the way that is timed."""
    ways = iter(milliseconds.values())
    given = (torch.ones(2),)
    one = kernels.Case("a kernel", "bf16", given, lambda x: (x,), lambda x: (x,))
    monkeypatch.setattr(kernels, "FAMILIES", {"rows": lambda *given: [one]})
    monkeypatch.setattr(kernels, "FULL", kernels.SMALL)
    monkeypatch.setattr(kernels, "ROTATED_BYTES", 16)
    monkeypatch.setattr(torch, "compile", lambda run, dynamic: run)

    def taken(runs: object, device: str) -> float:
        if math.isnan(found := next(ways)):
            raise RuntimeError("cannot be run")
        return found

    monkeypatch.setattr(kernels.gpu_rates, "milliseconds", taken)
    (entry,) = kernels.timings(Path("kernels.so"), "rows", "cuda")
    return dict(entry)


@pytest.mark.parametrize(
    ("kernel", "plain", "compiled", "delete"),
    [(1.0, 3.0, 2.0, False), (2.5, 3.0, 2.0, True), (2.5, 2.0, 3.0, True), (4.0, 3.0, 2.0, True)]
    + [(2.5, 3.0, math.nan, False), (math.nan, 3.0, 2.0, True), (2.0, 3.0, 2.0, True)],
)
def test_kernel_that_does_not_beat_what_it_replaces_is_to_be_deleted(
    kernels: ModuleType, kernel: float, plain: float, compiled: float, delete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = case(kernels, {"kernel": kernel, "plain": plain, "compiled": compiled}, monkeypatch)
    assert found["delete_candidate"] is delete
    assert ("compiled_error" in found) is math.isnan(compiled) and ("kernel_error" in found) is math.isnan(kernel)


def test_attention_of_ours_has_to_beat_all_that_is_right(kernels: ModuleType) -> None:
    def candidates(*found: AttentionTiming) -> list[bool]:
        return [one["delete_candidate"] for one in kernels.attention_timings(found, True)]

    torchs, wrong = AttentionTiming("torch", 3.0, 0.01), AttentionTiming("flash", 1.0, 0.5)
    assert candidates(torchs, wrong, AttentionTiming("int8", 2.0, 0.01)) == [False], "what is wrong is no rival"
    assert candidates(torchs, AttentionTiming("int8", 3.5, 0.01)) == [True]
    assert candidates(torchs, AttentionTiming("int8", 1.0, 0.5)) == [True], "it is wrong itself"
    ours = AttentionTiming("int8", 2.0, 0.01)
    assert candidates(torchs, ours, AttentionTiming("int8-wgmma", 2.5, 0.01)) == [False, True]
    assert candidates(torchs, ours, AttentionTiming("int8-wgmma", 1.5, 0.01)) == [False, False]


def test_kernels_answer_that_is_wrong_or_no_number_fails(kernels: ModuleType) -> None:
    one = kernels.Case("a kernel", "int8", (), None, None)
    codes, scales = torch.tensor([[100, -50]], dtype=torch.int8), torch.tensor([[0.5]])
    right = (codes, scales)
    # The same numbers by other codes are the same answer; other scales are another.
    assert kernels.check("it", one, (codes, scales), right)["error"] == 0
    assert kernels.check("it", one, (torch.tensor([[50, -25]], dtype=torch.int8), 2 * scales), right)["passed"]
    assert not kernels.check("it", one, (codes, 1.1 * scales), right)["passed"]
    lost = kernels.check("it", one, (codes, scales * math.nan), right)
    assert lost["error"] is None and lost["passed"] is False
    plain = kernels.Case("a kernel", "fp32", (), None, None)
    first, second = torch.ones(3), torch.ones(3)
    assert not kernels.check("it", plain, (first, second * math.nan), (first, second))["passed"]
    assert not kernels.check("it", plain, (first * 1.1, second), (first, second))["passed"]
