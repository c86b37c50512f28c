"""The roofline bound of denoising: operations at full size, published rates, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fakes
from animegamer_bench.roofline import Roofline, count_operations, gpu_rates, roofline
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Geometry

FULL = {"hidden": 1920, "layers": 30, "patch": 2}
H100, RTX_3060 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 3060"


@pytest.fixture
def full(tmp_path: Path) -> Bundle:
    """A bundle that says full size of itself."""
    bundle = fakes.write_bundle(tmp_path / "tiny")
    sizes = {"latent_height": 60, "latent_width": 90, "shot_width": 1920}
    geometry = replace(bundle.manifest.geometry, height=480, width=720, shot_tokens=226, **sizes)
    assert isinstance(geometry, Geometry)
    return replace(bundle, manifest=replace(bundle.manifest, geometry=geometry, sizes={"denoiser": FULL}))


def bound(bundle: Bundle, branches: float, *card: str) -> Roofline | None:
    return roofline(bundle, branches, lambda: gpu_rates(*card))


def test_operations_of_full_size_are_those_of_the_published_model(full: Bundle) -> None:
    work = count_operations(full)
    assert work is not None
    assert (work[0] / 1e12, work[1] / 1e12) == pytest.approx((18.5, 11.2), abs=0.05)


def test_bound_of_a_gpu_uses_its_own_rates(full: Bundle) -> None:
    found = bound(full, 100, H100, "bf16")
    assert found is not None and found.seconds == pytest.approx(100 * 29.7 / 989.4, rel=5e-3)
    assert found.source == "published peak of H100 SXM, products in fp16, attention in fp16"
    eight = bound(full, 100, H100, "fp8")
    assert eight is not None and eight.seconds == pytest.approx(100 * (18.5 / 1978.7 + 11.2 / 989.4), rel=5e-3)
    assert bound(full, 100, RTX_3060, "fp8") is None
    ampere = bound(full, 1, RTX_3060, "int8")
    assert ampere is not None and ampere.seconds == pytest.approx(18.5 / 101.9 + 11.2 / 25.5, rel=5e-3)
    scores = bound(full, 1, RTX_3060, "int8", "int8")
    assert scores is not None and scores.source.endswith("products in int8, attention in int8")
    assert scores.seconds == pytest.approx(18.5 / 101.9 + 5.6 / 101.9 + 5.6 / 50.9, rel=5e-3)
    hopper = bound(full, 1, H100, "bf16", "int8")
    assert hopper is not None and hopper.seconds == pytest.approx(18.5 / 989.4 + 5.6 / 1978.7 + 5.6 / 989.4, rel=5e-3)
