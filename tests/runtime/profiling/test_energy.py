"""Energy by the machine's counters, read from a folder and a library that stand in for Linux and NVML."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from fake_nvml import FakeNvml

from animegamer_rt.profiling import energy, nvml

TIMEOUT_S = 10
SPAN = 1_000_000
"""Of the counters in the folder: they wrap at one joule."""


def fake(monkeypatch: pytest.MonkeyPatch, *lacks: str, cards: tuple[str, ...] = ("GPU-a",)) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(cards, lacks))


def zone(folder: Path, name: str, words: str, microjoules: int) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "name").write_text(words + "\n")
    (path / "max_energy_range_uj").write_text(f"{SPAN - 1}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    return path / "energy_uj"


def test_a_card_of_several_is_the_one_that_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, cards=("GPU-a", "GPU-b"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.open_nvml()[0] is None
    for uuid in ("GPU-a", "GPU-b"):
        card, _ = nvml.open_nvml(uuid)
        assert card is not None and card.facts()["name"] == f"Card {uuid}"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    card, _ = nvml.open_nvml()
    assert card is not None and card.facts()["name"] == "Card GPU-b"


def test_power_is_sampled_while_the_work_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, "energy")
    monkeypatch.setattr(energy, "POWER_PERIOD_S", 0.001)
    readings, often = list[float](), threading.Event()

    def watts(card: nvml.NvmlDevice) -> float:
        readings.append(100.0)
        if len(readings) > 5:
            often.set()
        return readings[-1]

    monkeypatch.setattr(nvml.NvmlDevice, "watts", watts)
    with energy.gpu_energy(*nvml.open_nvml()) as meter:
        assert often.wait(TIMEOUT_S), "what is drawn between beginning and end is not known"
    assert meter.joules is not None and meter.joules > 0


@pytest.mark.parametrize(
    "lacks, cards, visible, said",
    [
        (("driver",), ("GPU-a",), "", "does not answer: Not Supported"),
        (("energy", "power"), ("GPU-a",), "", "neither energy nor power"),
        ((), ("GPU-a", "GPU-b"), "1", "several GPUs"),
        ((), ("GPU-a", "GPU-b"), "GPU-c", "Not Found"),
    ],
)
def test_a_card_that_cannot_be_asked_is_no_guess(
    monkeypatch: pytest.MonkeyPatch, lacks: tuple[str, ...], cards: tuple[str, ...], visible: str, said: str
) -> None:
    fake(monkeypatch, *lacks, cards=cards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with energy.gpu_energy(*nvml.open_nvml()) as meter:
        pass
    assert meter.joules is None
    assert meter.source.startswith("not measured: ") and said in meter.source


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.open_nvml() == (None, "pynvml is not installed (pip install nvidia-ml-py)")


def test_the_packages_are_summed_over_their_wraps_and_nothing_is_counted_twice(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 100_000)
    inside, platform = zone(tmp_path, "intel-rapl:0:0", "core", 0), zone(tmp_path, "intel-rapl:2", "psys", 0)
    meter = energy.cpu_energy(tmp_path)
    with meter:
        first.write_text("50000")  # wrapped: 150 mJ on
        second.write_text("350000")
        inside.write_text("140000")
        platform.write_text("700000")
    assert meter.joules == pytest.approx(0.4)
    assert meter.source == "RAPL of package-0, package-1"


def test_counters_that_are_missing_closed_or_lost_are_no_guess(tmp_path: Path) -> None:
    with energy.cpu_energy(tmp_path / "none") as meter:
        pass
    assert meter.joules is None and "no RAPL counter" in meter.source
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    with energy.cpu_energy(tmp_path) as meter:
        counter.unlink()
    assert meter.joules is None and meter.source == "not measured: RAPL of package-0 stopped answering"
    assert "cannot be read" in energy.cpu_energy(tmp_path).source
