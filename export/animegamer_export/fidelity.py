"""How near a plan's clips are to the exact plan's: the same seed, instruction and shot, two plans, four figures.

Knows the runtime's rooms and nothing of any world; whether a clip still shows what was asked is the pocket's judge's
business. Source of the choice of figures: SSIM by Wang et al. 2004 (11-pixel Gaussian window, sigma 1.5).
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.contract import Engines
from animegamer_rt.bundle import Bundle
from animegamer_rt.pipeline import Rooms, open_rooms
from animegamer_rt.state import Instruction, motion_scope

_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2

Clip = npt.NDArray[np.uint8]


def plan_fidelity(
    bundle: Bundle, engines: Engines, plan: str, instructions: Sequence[str], seed: int, yardstick: str = "exact"
) -> dict[str, float | int | str]:
    """Mean figures of first turns played by both plans.

    `latent_relative_error` is |a - b| / |b| of the final latents; `psnr_db` and `ssim` are of the frames;
    `motion_ratio` is the mean absolute frame difference of the plan's clips over the yardstick's.
    """
    tried, exact = open_rooms(bundle, engines, plan), open_rooms(bundle, engines, yardstick)
    errors, decibels, similarities, motions = [], [], [], []
    for number, text in enumerate(instructions):
        latent, clip = _render(tried, text, seed + number)
        true_latent, true_clip = _render(exact, text, seed + number)
        errors.append(float(np.linalg.norm(latent - true_latent) / np.linalg.norm(true_latent)))
        squared = float(np.mean((clip.astype(np.float32) - true_clip) ** 2))
        decibels.append(10 * np.log10(255.0**2 / max(squared, 1e-6)))
        similarities.append(float(np.mean([ssim(a, b) for a, b in zip(clip, true_clip, strict=True)])))
        motions.append((_motion(clip), _motion(true_clip)))
    amounts = np.asarray(motions)
    return {
        "against": yardstick,
        "turns": len(instructions),
        "seed": seed,
        "latent_relative_error": round(float(np.mean(errors)), 4),
        "psnr_db": round(float(np.mean(decibels)), 2),
        "ssim": round(float(np.mean(similarities)), 4),
        "motion_ratio": round(float(amounts[:, 0].sum() / max(1e-9, amounts[:, 1].sum())), 4),
    }


def ssim(first: Clip, second: Clip) -> float:
    """Structural similarity of two frames uint8 [H, W, 3], mean over pixels and channels; 1 when equal."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    mean_a, mean_b = _blur(a), _blur(b)
    var_a, var_b = _blur(a * a) - mean_a**2, _blur(b * b) - mean_b**2
    covariance = _blur(a * b) - mean_a * mean_b
    top = (2 * mean_a * mean_b + _C1) * (2 * covariance + _C2)
    return float(np.mean(top / ((mean_a**2 + mean_b**2 + _C1) * (var_a + var_b + _C2))))


def _blur(image: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(cv2.GaussianBlur(image, (11, 11), 1.5), np.float64)


def _motion(clip: Clip) -> float:
    return float(np.abs(np.diff(clip.astype(np.int16), axis=0)).mean())


def _render(rooms: Rooms, text: str, seed: int) -> tuple[npt.NDArray[np.float32], Clip]:
    """Latent and frames of a first turn."""
    rules = rooms.bundle.manifest.compatibility
    prediction = rooms.predictor.predict((), Instruction.parse(text))
    scope = motion_scope(prediction.game_state, rules.motion_table, rules.motion_source)
    *_, last = rooms.denoiser.denoise(prediction.shot, scope, rooms.denoiser.draw_noise(seed, 1))
    return last.latent, np.stack(list(rooms.vae.decode(last.latent)))
