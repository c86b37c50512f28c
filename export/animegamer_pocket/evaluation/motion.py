"""Measures motion: mean optical flow, and the paper's figures against the instructed level (ACC-F, MAE-F).

Flow is Farneback's, between neighbouring frames. The mean over a clip of pixels that move more than 0.2 px per frame is
its motion amount. Four thresholds, fitted on rendered clips, turn an amount into a level 1..5.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

FILTER_PX = 0.2
"""Flow up to this, in px per frame, is noise (the paper's filter)."""
LEVELS = 5


def flow_magnitudes(frames: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Optical flow magnitude in px per frame, float32 [T-1, H, W], of a clip uint8 [T, H, W, 3]."""
    grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    lengths = []
    for first, second in zip(grey[:-1], grey[1:], strict=True):
        start = np.zeros((*first.shape, 2), np.float32)
        flow = cv2.calcOpticalFlowFarneback(first, second, start, 0.5, 3, 15, 3, 5, 1.2, 0)
        lengths.append(np.hypot(flow[..., 0], flow[..., 1]))
    return np.asarray(lengths, np.float32)


def motion_amount(frames: npt.NDArray[np.uint8]) -> float:
    """Mean flow of the moving pixels, px per frame; 0.0 for a still clip."""
    lengths = flow_magnitudes(frames)
    moving = lengths[lengths > FILTER_PX]
    return float(moving.mean()) if moving.size else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class MotionScale:
    """The thresholds between levels 1..5: four increasing amounts, px per frame."""

    thresholds: tuple[float, float, float, float]

    def level(self, amount: float) -> int:
        """The level 1..5 of a motion amount."""
        return 1 + sum(amount > threshold for threshold in self.thresholds)


def fit_scale(amounts: Sequence[float], levels: Sequence[int]) -> MotionScale:
    """Fits the thresholds to the amounts and levels of clips.

    A threshold separates the clips of two neighbouring levels with the fewest errors; ties are resolved by the middle.
    Raises ValueError if a level 1..5 has no clip.
    """
    values, names = np.asarray(amounts, np.float64), np.asarray(levels)
    missing = sorted(set(range(1, LEVELS + 1)) - set(names.tolist()))
    if missing:
        raise ValueError(f"no clip of level {missing}; thresholds need clips of every level 1..{LEVELS}")
    cuts = []
    for level in range(1, LEVELS):
        low, high = values[names == level], values[names == level + 1]
        edges = np.sort(np.concatenate([low, high]))
        middles = (edges[:-1] + edges[1:]) / 2
        wrong = (low[None] > middles[:, None]).sum(axis=1) + (high[None] <= middles[:, None]).sum(axis=1)
        best = middles[wrong == wrong.min()]
        cuts.append(float((best[0] + best[-1]) / 2))
    first, second, third, fourth = np.maximum.accumulate(cuts).tolist()
    return MotionScale((first, second, third, fourth))


def motion_figures(amounts: Sequence[float], levels: Sequence[int], scale: MotionScale) -> dict[str, object]:
    """ACC-F, MAE-F (levels), the share within one level, mean amounts (px/frame) by level and the ratio of 5 to 1."""
    measured = np.asarray([scale.level(amount) for amount in amounts])
    off = np.abs(measured - np.asarray(levels))
    means = {
        level: float(np.mean([a for a, named in zip(amounts, levels, strict=True) if named == level]))
        for level in sorted(set(levels))
    }
    ratio = means[LEVELS] / means[1] if {1, LEVELS} <= set(means) and means[1] > 0 else None
    return {
        "acc_f": round(float((off == 0).mean()), 4),
        "mae_f_levels": round(float(off.mean()), 4),
        "within_one_level": round(float((off <= 1).mean()), 4),
        "amount_px_per_frame_by_level": {str(level): round(mean, 3) for level, mean in means.items()},
        "amount_ratio_5_to_1": None if ratio is None else round(ratio, 2),
    }
