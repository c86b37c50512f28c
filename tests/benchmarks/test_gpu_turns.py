"""Turns of a GPU run: what a variant names is what opens, and what is recorded was measured after the warm-up."""

from __future__ import annotations

import importlib
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from project import ROOT

import fakes
from animegamer_rt.backends.torch.rowwise_linear import FP8
from animegamer_rt.bundle.denoise_plan import even_plan
from animegamer_rt.profiling.energy import EnergyMeter
from animegamer_rt.stages.vae import Vae


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.turns")


ASKED = {"device": "cuda", "bundle": "pocket", "size": "tiny", "library": "kernels.so", "turns": 3}


def parts(turns: ModuleType, **changes: Any) -> Any:
    """Parts of numpy, at a size of their own."""
    engines = fakes.fake_engines()
    about = {
        "name": "full",
        "origin": "random weights",
        "geometry": fakes.GEOMETRY,
        "fidelity": {},
        "engines": engines,
        "fingerprint": "abc",
    }
    about |= {"vae": Vae(engines.vae), "precision": {"denoiser": "fp8"}, "open_seconds": 1.0}
    return turns.Parts(**about, plans={"exact": even_plan(4), "fast": even_plan(2)}, **changes)


def test_variant_is_what_is_opened(turns: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    place = turns.Place()

    def open_place(*given: Any) -> Any:
        asked["place"] = given
        return place

    def assemble(*given: Any) -> Any:
        asked["parts"] = given[4:]
        return fakes.fake_engines()

    def open_kernels(choice: Any, device: object) -> tuple[Any, str]:
        asked["kernels"] = choice
        return (choice or None), "words"

    monkeypatch.setattr(turns.backend, "open_device", open_place)
    monkeypatch.setattr(turns.backend, "build_engines", assemble)
    monkeypatch.setattr(turns, "open_kernels", open_kernels)
    monkeypatch.setattr(turns, "random_networks", lambda size, place, packed: asked.update(packed=packed))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (21e9, 24e9))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share: asked.update(memory=share), raising=False
    )
    library = Path("kernels.so")
    for variant, opened in (
        (turns.Variant("bf16"), (("cuda", "bf16", True), False, ("step", False, None, None, "torch"), False, None)),
        (turns.Variant("fp8", "off"), (("cuda", "fp8", False), False, ("off", False, FP8, None, "torch"), False, None)),
        (
            turns.Variant("fp8", "turn", True, True, "int8", True, 12),
            (("cuda", "fp8", True), library, ("turn", True, FP8, library, "int8"), True, 9 / 24),
        ),
    ):
        asked.clear()
        made = turns.open_parts(ASKED, variant)
        assert tuple(map(asked.get, ("place", "kernels", "parts", "packed", "memory"))) == opened, variant.name
        assert made.precision["denoiser"] == variant.precision
        assert made.precision["predictor"] == ("int4-qdq" if variant.int4_predictor else "fp32")


def test_turns_are_counted_after_one_that_runs_plainly_and_one_that_captures(
    turns: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    class Counts(EnergyMeter):
        def __init__(self) -> None:
            super().__init__(None, "a counter")

        def __enter__(self) -> Counts:
            done.append("meter")
            return self

        def __exit__(self, *error: object) -> None:
            self.joules = 30.0

    def play(parts: object, plan: Any) -> Any:
        done.append(len(plan))
        return turns.Turn(0.5, 8.0, 1.0, 0.6, 9.0, 9.4, 10.0)

    monkeypatch.setattr(turns, "open_parts", lambda *given: parts(turns))
    monkeypatch.setattr(turns, "play", play)
    monkeypatch.setattr(turns.energy, "gpu_energy", lambda *given: Counts())
    monkeypatch.setattr(turns.gpu_machine, "facts", lambda: {"name": "a card"})
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: done.append("peak"))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 3 * 2**30)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2**30)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5 * 2**30, 8 * 2**30))
    exact, fast = turns.entries({**ASKED, "plans": ("exact", "fast"), "variant": {"precision": "fp8"}})
    assert done == [4, 4, "peak", "meter", 4, 4, 4, 2, 2, "peak", "meter", 2, 2, 2]
    assert (exact["plan"], exact["steps"], exact["branches"], fast["branches"]) == ("exact", 4, 8, 4)
    assert (exact["energy_j_per_turn"], exact["n"]) == (10.0, 3)
    peaks = [exact[f"memory_{of}peak_mib"] for of in ("", "allocated_", "card_")]
    assert peaks == [3072.0, 1024.0, 4096.0], "the card lacks a gigabyte more than torch holds"
    assert exact["first_frame_of_vae"] == 0.4


def test_summary_is_of_the_turn_in_the_middle_and_of_a_slow_one(turns: ModuleType) -> None:
    measured = [
        turns.Turn(0.1 * n, 0.4 * n, 0.3 * n, 0.2 * n, 0.6 * n, 0.7 * n, n) for n in (3, 1, 2, 21, *range(4, 21))
    ]
    assert turns.summary(measured, 2.2) == {
        "seconds_per_turn_p50": 11.0,
        "seconds_per_turn_p95": 20.0,
        "stages": {
            "predictor": {"p50": 1.1, "p95": 2.0},
            "denoiser": {"p50": 4.4, "p95": 8.0},
            "vae": {"p50": 3.3, "p95": 6.0},
        },
        "seconds_to_state_p50": 2.2,
        "seconds_to_first_frame_p50": 7.7,
        "first_frame_of_vae": 0.25,
        "real_time_factor": 0.2,
    }


def test_clock_of_a_turn_goes_from_state_to_latent_to_frames(
    turns: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count()
    monkeypatch.setattr(turns.time, "perf_counter", lambda: float(next(ticks)))
    one = parts(turns)
    turn = turns.play(one, one.plans["fast"])
    assert 0 < turn.predictor == turn.to_state < turn.to_latent < turn.to_first_frame < turn.total
    predictor = one.engines.predictor
    window, now = predictor.read
    assert len(window.masks) == 1 and len(now.masks) == 2, "its history is read apart, as that of a game is"
    assert len(window.history_shots) == turns.HISTORY_TURNS * 226 and len(predictor.extended) == turns.STRENGTHS - 1


@pytest.mark.parametrize(("part", "times"), [("denoiser", 50), ("vae", 1), ("predictor", 1)])
def test_peers_turn_has_fifty_pairs_and_no_warm_up(
    turns: ModuleType, part: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = importlib.import_module("benchmarks.gpu.peers")
    taken = [100.0, 50.0, 3.0, 1.0, 2.0, 5.0, 4.0]
    assert len(taken) == peers.WARM_UP + peers.REPEATS
    ticks = iter([tick for seconds in taken for tick in (0.0, seconds)])
    monkeypatch.setattr(peers.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(peers, "_MAKERS", {part: ("numpy", lambda device, shape: lambda: None)})
    (found,) = peers.entries({"device": "cpu", "part": part, "mode": "eager"})
    assert (found["p50"], found["p95"], found["n"], found["pairs"]) == (3.0 * times, pytest.approx(4.8 * times), 5, 50)
