"""The jobs of a GPU run: what is checked of each way, and the plan that skips blocks, who plays it and its floor."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from project import ROOT

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import open_bundle


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.run")


def test_plan_that_skips_is_played_by_the_variants_of_the_goals(gpu: ModuleType) -> None:
    def played(device: str) -> dict[str, set[str]]:
        asked = gpu.gpu_jobs.jobs(device, ["full"], gpu.PLANS, lambda variant: True)
        turns = [job for job in asked if job.stage == "turns"]
        return {plan: {job.name for job in turns if plan in job.plans} for plan in gpu.PLANS}

    found = played("cuda")
    assert found["balanced-skipping"] == {f"full-{variant.name}" for variant in gpu.gpu_jobs.FOR_GOALS}
    assert found["balanced-skipping"] < found["balanced"] == found["exact"] == found["fast"]
    assert played("cpu")["balanced-skipping"] == {"full-fp32-eager"}
    options = gpu.parse(["--stages", "turns", "--size", "full", "--plans", "balanced-skipping"])
    assert {job.name for job in gpu.wanted(options)} == found["balanced-skipping"] | {"library"}


def test_plan_that_skips_is_balanced_without_the_middle_of_every_second_step(gpu: ModuleType) -> None:
    turns, bundle = importlib.import_module("benchmarks.gpu.turns"), open_bundle("pocket")
    balanced = DenoisePlan.from_dict(bundle.plan("balanced"))
    for blocks, middle in ((None, (1, 4)), (30, (5, 24))):
        plan = turns.skipping_plan(bundle, blocks)
        assert [replace(step, blocks=None) for step in plan] == list(balanced)
        assert {step.blocks[:2] for step in plan if step.blocks} == {middle}
        skipped = [number for number, step in enumerate(plan) if step.skipped_blocks]
        assert skipped and all(number % 2 for number in skipped), "every second"
        rows = sum(len(plan.steps[number].rows) for number in skipped)
        assert plan.cost(blocks or 6) == pytest.approx(balanced.network_rows - rows * 2 / 3, abs=0.01)


def test_floor_of_blocks_that_are_skipped_is_of_those_that_are_not(gpu: ModuleType) -> None:
    rates = [{"of": "product bf16", "ms_p50": 1.0, "a_pair": 30, "passed": True}] * 4
    rates += [{"of": "attention", "ms_p50": 1.0, "a_pair": 30, "passed": True, "way": "torch"}]
    about = {"size": "full", "precision": {"denoiser": "bf16"}, "branches": 20, "shape": [17], "memory_peak_mib": 1.0}
    about |= {"seconds_per_turn_p50": 2.0, "stages": {"denoiser": {"p50": 1.5}}}
    heading = dict.fromkeys(gpu.gpu_record.HEADING, "")
    turns = gpu.gpu_record.turn_records({**heading, "rates": rates, "turns": [about, {**about, "cost_rows": 14.0}]})
    assert [turn["denoiser_floor_seconds"] for turn in turns] == [1.5, 1.05]


def test_graphs_and_waiting_are_checked_of_all_that_kernels_play(gpu: ModuleType) -> None:
    checks = importlib.import_module("benchmarks.gpu.checks")
    jobs = gpu.gpu_jobs.jobs("cuda", ["full"], ["exact"], lambda variant: True)
    asked = [job.asks for job in jobs if job.stage == "checks" and "precision" in job.asks]
    ways = [
        checks.Way("cuda", one["precision"], Path("a.so") if one["kernels"] else None, one["attention"])
        for one in asked
    ]
    held = {way for way in ways if {"graphs", "no waiting"} <= checks.groups(None, way).keys()}
    assert held == {way for way in ways if (way.kernels or way.precision == "bf16") and way.attention != "fastest"}
    assert {(way.precision, way.attention) for way in held if way.kernels} >= {
        *(("fp8", attention) for attention in ("torch", "int8")),
        *(("bf16", attention) for attention in ("torch", "int8")),
        ("int8", "torch"),
        ("fp16", "torch"),
    }
