"""The tiny bundle, for tests that have none of their own, and one that says full size of itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fakes
from animegamer_rt.bundle.denoise_plan import build_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.bundle.roles import TINY_DECODER

SIZES = {
    "predictor": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "mlp": 14336, "vocabulary": 32284},
    "denoiser": {"hidden": 1920, "layers": 30, "heads": 30, "latent_height": 60, "latent_width": 90},
    "decoder": {"channels": 128, "multipliers": [1, 2, 2, 4], "res_blocks": 3, "latent_channels": 16},
    "tiny_decoder": {"channels": [256, 128, 64, 64], "blocks": 3, "doubles_time": [False, True, True]},
}
PARTS = {
    "predictor": ("int4-qdq", 4_528_307_200),
    "denoiser": ("fp16", 3_429_934_848),
    "vae_first": ("fp16", 246_847_744),
}
"""Part -> its precision, and the bytes of its weights at full size."""
TURBO = {"denoiser": "denoiser_turbo", "vae": "vae_light"}
LIGHT_BYTES = 22_845_848


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A fresh one for each test, in `tmp_path`."""
    return fakes.write_bundle(tmp_path / "tiny")


@pytest.fixture
def folder(bundle: Bundle) -> Path:
    """Its folder."""
    return bundle.folder


@pytest.fixture
def full(tmp_path: Path) -> Bundle:
    """A bundle that says full size of itself, with the plan `turbo`; its files are those of the tiny bundle."""
    bundle = fakes.write_bundle(tmp_path / "full")
    manifest = bundle.manifest
    parts, files = dict(manifest.parts), dict(manifest.files)
    for name, (precision, size) in PARTS.items():
        data = f"{name}.weights"
        parts[name] = replace(parts[name], precision=precision, data_files=(data,))
        files[data] = replace(next(iter(files.values())), bytes=size)
    parts[TURBO["denoiser"]] = parts["denoiser"]
    light = replace(parts["vae_first"], data_files=("light.weights",), network=TINY_DECODER)
    parts |= dict.fromkeys(("vae_light_first", "vae_light_next"), light)
    files["light.weights"] = replace(next(iter(files.values())), bytes=LIGHT_BYTES)
    rows = build_plan([999, 319, 19], guidance=[1.0] * 3, branches=["conditional"] * 3, noise_steps=50)
    exact = replace(manifest.plans["exact"], plan=build_plan(even_timesteps(50)).to_dict())
    plans = {"exact": exact, "turbo": PlanEntry(rows.to_dict(), {"ssim": 0.97}, parts=TURBO)}
    geometry = replace(manifest.geometry, height=480, width=720, latent_height=60, latent_width=90, window_tokens=4096)
    about = replace(manifest, geometry=geometry, parts=parts, files=files, sizes=SIZES, plans=plans)
    return replace(bundle, manifest=about)
