"""What a GPU run's figures are judged by: the goals' numbers, one variant for all of them, what a field means."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from fake_nvml import FakeNvml
from project import ROOT

import fakes
from animegamer_rt.bundle.denoise_plan import even_plan
from animegamer_rt.profiling import energy
from animegamer_rt.stages.vae import Vae

Entry = dict[str, Any]


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.goals")


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.turns")


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


def test_goals_are_those_of_the_project(goals: ModuleType) -> None:
    bounds = {(goal.goal, goal.plan, goal.precision, goal.peer): goal.bound for goal in goals.GOALS}
    assert bounds == {
        ("exact in FP8, seconds", "exact", "fp8", False): 4.2,
        ("exact in bf16, seconds", "exact", "bf16", False): 5.6,
        ("exact in FP8, denoiser over its floor", "exact", "fp8", False): 1.15,
        ("exact in bf16, denoiser over its floor", "exact", "bf16", False): 1.15,
        ("balanced, seconds", "balanced", None, False): 2.1,
        ("fast, seconds", "fast", None, False): 1.2,
        ("state after, seconds", "exact", None, False): 0.06,
        ("first frame, of the vae's time", "exact", None, False): 0.6,
        ("peak memory, GB", "exact", None, False): 12.0,
        ("exact, times as fast as diffusers eager", "exact", None, True): 2.7,
        ("balanced, times as fast as diffusers eager", "balanced", None, True): 5.5,
        ("fast, times as fast as diffusers eager", "fast", None, True): 9.5,
    }
    figures = {goal.goal: goal.figure(PEER | {"memory_card_peak_mib": 1e9 / 2**20}) for goal in goals.GOALS}
    assert figures.pop("peak memory, GB") == pytest.approx(9000 * 2**20 / 1e9)
    assert figures.pop("state after, seconds") == 0.05 and figures.pop("first frame, of the vae's time") == 0.5
    floors = [figures.pop(name) for name in [*figures] if name.endswith("floor")]
    assert floors == [pytest.approx(1.1)] * 2 and set(figures.values()) == {12.0}


def test_first_frame_counts_from_the_latent_and_energy_is_that_of_a_turn(
    turns: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(to_first_frame: float) -> Any:
        return turns.Turn(1.0, 2.0, 4.0, 1.0, 3.0, to_first_frame, 7.0)

    share = [turns.summary([turn(at)], 2.1)["first_frame_of_vae"] for at in (4.0, 5.0, 7.0)]
    assert share == [0.25, 0.5, 1.0]

    cards: list[Any] = []

    def metered(*card: Any) -> Any:
        cards.append(card)
        joules = iter((100.0, 130.0))
        return energy.EnergyMeter(lambda: next(joules), "a counter")

    monkeypatch.setattr(turns.nvml, "open_nvml", lambda uuid=None: (f"card {uuid}", ""))
    monkeypatch.setattr(turns.energy, "gpu_energy", metered)
    monkeypatch.setattr(turns.gpu_machine, "uuid", lambda: "GPU-b", raising=False)
    monkeypatch.setattr(turns.gpu_machine, "facts", lambda: None)
    monkeypatch.setattr(turns, "memory", dict)
    monkeypatch.setattr(turns, "play", lambda parts, plan: turn(5.0))
    monkeypatch.setattr(turns, "open_parts", lambda asked, variant: parts(turns))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    (found,) = turns.entries({"device": "cuda", "plans": ["fast"], "turns": 3, "variant": {"precision": "bf16"}})
    assert (found["energy_j_per_turn"], found["energy_source"], cards) == (10.0, "a counter", [("card GPU-b", "")])
    no_counter = energy.EnergyMeter(None, "not measured: no counter")
    monkeypatch.setattr(turns.energy, "gpu_energy", lambda card, why: no_counter)
    (found,) = turns.entries({"device": "cuda", "plans": ["fast"], "turns": 3, "variant": {"precision": "bf16"}})
    assert (found["energy_j_per_turn"], found["energy_source"]) == (None, "not measured: no counter")


def test_card_of_several_is_the_one_that_torch_runs_on(
    turns: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = turns.gpu_machine
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(("GPU-a", "GPU-b-c")))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="b-c"))
    assert machine.facts()["name"] == "Card GPU-b-c"
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\ncase "$*" in *--id=GPU-b-c) echo "Card b-c, 1, 2, 3, 4, 5";; *) echo x; echo x;; esac\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert machine.facts()["name"] == "Card b-c"
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    assert machine.facts() is None, "torch before it told"


def test_peers_read_a_prompt_as_long_as_ours_and_as_is_predicted(turns: ModuleType) -> None:
    peers, predict = (importlib.import_module(f"benchmarks.{name}") for name in ("gpu.peers", "predict"))
    given = turns.prompt(fakes.GEOMETRY)
    assert given.history is not None and given.history_turns == 4
    read = given.history.ids.shape[1], given.turn.ids.shape[1]
    assert read == predict.FULL_PROMPT and sum(read) == peers.FULL.prompt_tokens
    assert f"({sum(read)}\ntokens" in (ROOT / "benchmarks" / "PREDICTED.md").read_text()
    shots = [int((tokens.history_index[0] >= 0).sum()) for tokens in given.runs]
    assert shots == [4 * 226, 0], "each past turn's shot lies in the history, whole"
    assert given.turn.readout[-1] < read[1]


def parts(turns: ModuleType) -> Any:
    """Parts of which no more is asked than what they are."""
    engines = fakes.fake_engines()
    about: dict[str, Any] = {"name": "full", "fingerprint": None, "origin": "random weights", "open_seconds": 1.0}
    about |= {"geometry": fakes.GEOMETRY, "plans": {"fast": even_plan(2)}, "fidelity": {}, "engines": engines}
    return turns.Parts(**about, vae=Vae(engines.vae), precision={"denoiser": "bf16"})


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


@pytest.mark.parametrize("attention", ["int8", "int8-wgmma"])
def test_bf16_with_int8_scores_reaches_no_goal_of_bf16(goals: ModuleType, attention: str) -> None:
    rounded = [PEER, *played("rounded", "bf16", attention=attention)]
    held = {goal["goal"]: goal for goal in goals.goals(rounded)}
    assert held["exact in bf16, seconds"]["found"] is None
    assert held["exact in bf16, denoiser over its floor"]["found"] is None
    assert held["balanced, seconds"]["attention"] == attention, "a goal of no precision takes any, and says which"
    assert goals.together(rounded)[1]["variant"] is None
    exact = [*rounded, *played("exact", "bf16", slower=1.1, attention="cudnn")]
    found = {goal["goal"]: goal for goal in goals.goals(exact)}["exact in bf16, seconds"]
    assert (found["found"], found["variant"], found["attention"]) == (4.4, "exact", "cudnn")
    assert goals.together(exact)[1]["variant"] == "exact" and goals.together(exact)[1]["attention"] == "cudnn"
    in_fp8 = goals.goals(played("rounded", attention=attention))
    assert in_fp8[0]["attention"] == attention and in_fp8[0]["reached"], "FP8's floor is of the attention in use"


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
