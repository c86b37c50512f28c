"""The tables of the documents: predicted seconds by hand, and cells of records of which everything is known."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
from project import ROOT

from animegamer_rt.profiling.gpu_specs import GpuSpecs
from benchmarks import predict

CARD = GpuSpecs("a card", 1000, 1.0, 1000.0, fp16=100, fp16_sums=200, fp8=200, int8=400)
"""100, 200 and 400 tera-operations a second, a terabyte a second."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("tables")


def test_predicted_seconds_are_counted_work_over_rates() -> None:
    # Of 1061 tokens of history and 252 of the turn, read twice; and four readings of 4.1 GB of weights.
    predictor = 2 * 6.98e-3 * (1061 + 2 * 252) / 100 + 4 * 0.0041
    around = 110 / 100 + predictor
    sums = 30 * 6976 * 9 * 1920 * 10 / 1e12
    for products, attention, branch in (
        ("fp16", "fp16", (18.5 + 11.2) / 100),
        ("fp8", "fp16", 18.5 / 200 + 11.2 / 100),
        ("fp8", "int8", 18.5 / 200 + 5.6 / 400 + 5.6 / 200),
        ("int8", "fp16", 18.5 / 400 + 11.2 / 100 + sums),
    ):
        whole = predict.seconds(CARD, 98, products, attention, 1.0)
        assert whole == pytest.approx(98 * branch + around, rel=1e-9), (products, attention)
        assert predict.seconds(CARD, 98, products, attention, 0.5) == pytest.approx(2 * whole)


def record(**changes: Any) -> dict[str, Any]:
    stages = {"predictor": {"p50": 1.0}, "denoiser": {"p50": 6.0}, "vae": {"p50": 3.0}}
    about = {"machine": "a machine", "size": "full", "plan": "exact", "peer": None, "branches": 98, "stages": stages}
    about |= {"seconds_per_turn_p50": 10.0, "seconds_per_turn_p95": 12.0, "precision": {"denoiser": "fp8"}}
    about |= {"fidelity": {}, "commit": "abc", "date": "2026-01-02T03:04:05", "denoiser_floor_seconds": 4.0}
    return about | changes


def test_peer_that_turns_are_held_against_is_of_their_size_and_eager(table: ModuleType) -> None:
    ours, peer = record(), record(peer="diffusers eager", seconds_per_turn_p50=30.0)
    tiny, compiled = {**peer, "size": "tiny"}, {**peer, "peer": "diffusers compiled"}
    assert table.yardstick(ours, [tiny, compiled, ours]) is None
    assert table.yardstick(ours, [tiny, compiled, peer, ours]) is peer
    cells = dict(zip(table.COLUMNS, table.row(ours, peer), strict=True))
    assert (cells["diffusers eager / this"], cells["denoiser / floor"]) == ("3.0", "1.50")
    cells = dict(zip(table.COLUMNS, table.row(record(denoiser_floor_seconds=None)), strict=True))
    assert (cells["diffusers eager / this"], cells["denoiser / floor"]) == ("not measured", "not known")


def test_fidelity_is_that_of_the_record_and_never_assumed(table: ModuleType) -> None:
    assert table.fidelity(record()) == "the measure"
    assert table.fidelity(record(plan="fast")) == "not measured"
    assert table.fidelity(record(plan="fast", fidelity={"ssim": 0.9, "psnr_db": 25.0})) == "SSIM 0.900, 25.0 dB"
    assert table.fidelity(record(origin="random weights")) == table.fidelity(record(peer="diffusers eager"))


def test_goal_that_is_missed_is_marked_so(table: ModuleType) -> None:
    said = {"above": 0.96, "at": 0.95, "below": 0.94}
    marked = [name for name in said if "missed" in table._measured(said, [name], 0.95)]
    assert marked == ["below"] and "missed" not in table._measured(said, ["below"], None)
