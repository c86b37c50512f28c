"""The card of several that plays, asked of a library that stands in for NVML."""

from __future__ import annotations

import sys

import pytest
from fake_nvml import FakeNvml

from animegamer_bench.machine import open_card
from animegamer_rt.profiling.nvml import open_nvml


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
