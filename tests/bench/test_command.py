"""`animegamer-rt bench`: what a record holds, what is refused before measuring, and which card of several plays."""

from __future__ import annotations

import errno
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_nvml import FakeNvml

import animegamer_bench.run
import fakes
from animegamer_bench import machine
from animegamer_bench.machine import open_card
from animegamer_bench.records import write_record
from animegamer_bench.turns import measure_turns
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.onnxruntime import loader as onnxruntime
from animegamer_rt.bundle.files import write_error
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.cli import main
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.profiling.nvml import open_nvml

RUN = ("bench", "run")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny").folder)


@pytest.fixture(autouse=True)
def looked_at_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ALONE_S", 0.02)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fresh process would say is known already."""
    said = {"start_to_prompt_seconds": 1.0, "first_turn_of_process_seconds": 1.0, "host_memory_peak_mib": 321.0}
    monkeypatch.setattr(animegamer_bench.run, "measure_fresh_process", lambda bundle, plan, engines: said)


def test_machine_is_measured(bundle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    assert main([*RUN, "--bundle", bundle, "--plan", "exact", "--turns", "3", "--results", str(results)]) == 0
    (path,) = results.glob("*.json")
    record = json.loads(path.read_text())
    samples = record.pop("samples")
    said = capsys.readouterr().out
    assert f"record: {path}" in said and '"stages"' not in said
    assert len(samples["seconds"]) == 3 and record["unsteady"][0].startswith("3 turns are too few")
    assert (record["bundle"], record["plan"], record["n"], record["peer"]) == ("tiny", "exact", 3, None)
    assert set(record["stages"]) == {"predictor", "denoiser", "vae"}
    assert record["seconds_per_turn_max"] >= record["seconds_per_turn_p50"] > 0 == (record["seconds_per_turn_p95"] or 0)
    assert record["memory_peak_mib"] > 20 and record["start_to_prompt_seconds"] > 0
    assert record["first_turn_of_process_seconds"] > 0
    assert record["host_memory_peak_mib"] == record["memory_peak_mib"]
    assert record["fps"] == pytest.approx(17 / record["seconds_per_turn_p50"], rel=1e-2)
    assert record["machine"] and record["commit"] and record["date"].endswith("+00:00")
    assert record["fingerprint"] is None  # of random weights it would say nothing


@pytest.mark.usefixtures("fresh")
def test_the_shipped_bundles_default_plan_is_compared_with_exact(tmp_path: Path) -> None:
    assert main(["bench", "run", "--turns", "1", "--results", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    gate = json.loads(path.read_text())["quality_gate"]
    assert gate["passed"] and gate["ssim_against_exact"] >= gate["ssim_needed"]


@pytest.mark.usefixtures("fresh")
def test_a_gpus_record_says_card_clocks_and_limit(bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeNvml()
    card.throttle_bits = 0x40
    monkeypatch.setitem(sys.modules, "pynvml", card)

    def opened(bundle: Bundle, config: EngineConfig, plan: str) -> Engines:
        return replace(onnxruntime.load(bundle, EngineConfig()), attention="flash")

    monkeypatch.setattr(animegamer_bench.run, "open_engines", opened)
    assert main([*RUN, "--bundle", bundle, "--device", "cuda", "--turns", "2", "--results", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    assert record["machine"].startswith("Card GPU-a, ") and record["device"] == "cuda"
    assert record["attention"] == "flash"
    assert "the card throttled: thermal, by the hardware" in record["unsteady"]
    assert (record["gpu"]["driver"], record["gpu"]["power_limit_w"]) == ("590.48", 700.0)
    assert (record["memory_peak_mib"], record["host_memory_peak_mib"]) == (3 * 1024, 321.0)
    assert record["memory_source"].startswith("in use on the card")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("after", ["two turns", "the last turn"])
def test_ctrl_c_leaves_a_record_that_is_marked_incomplete(
    bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    readings = iter([0.0, *np.arange(1.0, 5.0)])  # of the clock: at the start, then before and after each turn

    def clock() -> float:
        for reading in readings:
            return float(reading)
        raise KeyboardInterrupt

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    command = animegamer_bench.run
    if after == "two turns":
        timed = lambda pipeline, turns: measure_turns(pipeline, turns, clock)  # noqa: E731
        monkeypatch.setattr(command, "measure_turns", timed)
    else:
        monkeypatch.setattr(command, "judge", interrupted)
    assert main([*RUN, "--bundle", bundle, "--plan", "exact", "--turns", "3", "--results", str(tmp_path)]) == 130
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    count = 2 if after == "two turns" else 3
    assert (record["n"], record["complete"], record["quality_gate"]) == (count, False, {"passed": None})
    assert record["unsteady"][0] == f"interrupted after {count} turns"


def test_benches_that_end_at_once_leave_a_record_each(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda number: write_record(tmp_path, "pocket", {"number": number}), range(24)))
    assert {json.loads(path.read_text())["number"] for path in tmp_path.glob("*.json")} == set(range(24))
    assert len(paths) == 24 and not list(tmp_path.glob(".*"))


@pytest.mark.usefixtures("fresh")
def test_a_disk_that_is_full_at_the_end_leaves_the_figures_on_the_screen_and_no_empty_record(
    bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise write_error(path, OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(animegamer_bench.records, "write_file", full)
    assert main([*RUN, "--bundle", bundle, "--plan", "exact", "--turns", "1", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "cannot be written; found no space left on device" in said.err and not list(tmp_path.iterdir())
    assert json.loads(said.out.splitlines()[-1])["n"] == 1


def fake(monkeypatch: pytest.MonkeyPatch, *lacks: str, cards: tuple[str, ...] = ("GPU-a",)) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(cards, lacks))


def test_a_card_of_several_is_the_one_that_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, cards=("GPU-a", "GPU-b"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert open_card() is None
    for uuid in ("GPU-a", "GPU-b"):
        card = open_card(uuid)
        assert card is not None and card.facts()["name"] == f"Card {uuid}"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    card = open_card()
    assert card is not None and card.facts()["name"] == "Card GPU-b"


@pytest.mark.parametrize(
    "lacks, cards, visible, said",
    [
        (("driver",), ("GPU-a",), "", "no NVIDIA driver (Not Supported)"),
        ((), ("GPU-a", "GPU-b"), "1", "several GPUs"),
        ((), ("GPU-a", "GPU-b"), "GPU-c", "does not know this GPU (Not Found)"),
    ],
)
def test_a_card_that_cannot_be_asked_is_no_guess(
    monkeypatch: pytest.MonkeyPatch, lacks: tuple[str, ...], cards: tuple[str, ...], visible: str, said: str
) -> None:
    fake(monkeypatch, *lacks, cards=cards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device, why_not = open_nvml()
    assert device is None and said in why_not


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml() == (None, "pynvml is not installed (pip install nvidia-ml-py)")
