"""Compares a variant's whole networks with plain bf16: the same seeded weights and inputs, the outputs of two plans.

`animegamer-rt selftest` runs the parts at pocket's size; this finds mistakes between them, or in a graph's replay.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import write_file
from animegamer_rt.stages.denoiser import Denoiser
from benchmarks.gpu.parts import Parts

PLANS = ("fast", "balanced")
"""The shorter ones: `exact` has no other kind of step."""
SEED, MOTION_SCOPE = 3, 10.0
PEAK = 255.0
ALLOWED = {"fp32": 0.02, "bf16": 0.02, "fp16": 0.02, "int8": 0.04, "fp8": 0.1}
"""Relative errors of the latent, by the denoiser's precision."""

Array = npt.NDArray[Any]
Entry = dict[str, Any]


def outputs(parts: Parts, plan: DenoisePlan) -> dict[str, Array]:
    """The latent f32 and the frames u8 of a plan, from inputs that depend only on the sizes."""
    geometry, random = parts.geometry, np.random.default_rng(SEED)
    shot = random.standard_normal((geometry.shot_tokens, geometry.shot_width), dtype=np.float32)
    denoiser = Denoiser(parts.engines.denoiser, plan, geometry.latent_shape)
    *_, last = denoiser.denoise(shot, MOTION_SCOPE, denoiser.draw_noise(SEED, 1))
    return {"latent": last.latent, "frames": np.stack(list(parts.vae.decode(last.latent)))}


def store(file: Path, arrays: Mapping[str, Array]) -> None:
    """Writes outputs, by "plan name", as an .npz file."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, packed.getvalue())


def compared(parts: Parts, plan: str, file: Path) -> Entry | None:
    """A variant's outputs of a plan compared with the stored ones; None if there are none for the plan or bundle."""
    if plan not in PLANS or parts.fingerprint is not None or not file.is_file():
        return None
    with np.load(file) as stored:
        expected = {name: stored[f"{plan} {name}"] for name in ("latent", "frames")}
    allowed = ALLOWED[parts.precision["denoiser"]]
    return compare(outputs(parts, parts.plans[plan]), expected, allowed)


def compare(found: Mapping[str, Array], expected: Mapping[str, Array], allowed: float) -> Entry:
    """Relative error and cosine of the latents, PSNR of the frames in dB (null if they are equal), and `passed`.

    allowed: the largest relative error. Non-finite figures are stored as null, and fail.
    """
    ours, theirs = (one["latent"].astype(np.float64).ravel() for one in (found, expected))
    size = float(np.linalg.norm(theirs))
    error = float(np.linalg.norm(ours - theirs)) / size
    cosine = float(ours @ theirs) / (float(np.linalg.norm(ours)) * size)
    square = float(np.mean(np.square(found["frames"].astype(np.float64) - expected["frames"])))
    return {
        "latent_error": round(error, 6) if math.isfinite(error) else None,
        "latent_cosine": round(cosine, 6) if math.isfinite(cosine) else None,
        "frames_psnr_db": round(10 * math.log10(PEAK**2 / square), 2) if square else None,
        "allowed": allowed,
        "passed": error <= allowed,
    }
