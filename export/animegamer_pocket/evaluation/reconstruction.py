"""PSNR of held-out rendered clips after encoding and decoding by the VAE, also by level."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from animegamer_export.evaluate.metrics import psnr
from animegamer_pocket.world.clips import render_many
from animegamer_pocket.world.sampling import sample_scenes

from .motion import LEVELS

_BATCH, _SEED = 4, 77


def vae_figures(reconstruct: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.uint8]], clips: int) -> dict[str, object]:
    """Mean PSNR in dB over held-out clips, in all and by level; each level has the same number of clips.

    reconstruct: encodes and decodes, uint8 [N, 17, 96, 144, 3] -> the same shape and dtype, else ValueError.
    """
    scenes = [
        dataclasses.replace(scene, level=1 + index % LEVELS)
        for index, scene in enumerate(sample_scenes(clips, _SEED, train=False))
    ]
    decibels: dict[int, list[float]] = {level: [] for level in range(1, LEVELS + 1)}
    for start in range(0, clips, _BATCH):
        batch = scenes[start : start + _BATCH]
        truth = render_many(batch)
        other = reconstruct(truth)
        if other.shape != truth.shape or other.dtype != np.uint8:
            raise ValueError(f"reconstruct gave {other.dtype} {other.shape}, expected uint8 {truth.shape}")
        for scene, first, second in zip(batch, truth, other, strict=True):
            decibels[scene.level].append(psnr(second, first))
    everything = [value for values in decibels.values() for value in values]
    return {
        "held_out_clips": clips,
        "psnr_db": round(float(np.mean(everything)), 2),
        "psnr_db_by_level": {
            str(level): round(float(np.mean(values)), 2) for level, values in decibels.items() if values
        },
    }
