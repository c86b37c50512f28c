"""Measures what the judge does not see: blurred edges, flicker where nothing moves, and jumps between turns."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

Clip = npt.NDArray[np.uint8]

MOVES, MARGIN = 40, 6
"""A pixel stands still if no pixel within MARGIN of it changes by more than MOVES grey levels over the clip."""


def edges(clip: Clip) -> float:
    """Mean difference of neighbouring pixels, in grey levels, of a clip uint8 [T, H, W, 3]. Blur lowers it."""
    frames = clip.astype(np.int16)
    return float(sum(np.abs(np.diff(frames, axis=axis)).mean() for axis in (1, 2)))


def flicker(clip: Clip) -> float | None:
    """Mean change from frame to frame, in grey levels, of the pixels that stand still; None if there are none."""
    moves = (np.ptp(clip, axis=0).max(axis=2) > MOVES).astype(np.uint8)
    still = cv2.dilate(moves, np.ones((2 * MARGIN + 1,) * 2, np.uint8)) == 0
    changes = np.abs(np.diff(clip.astype(np.int16), axis=0))[:, still]
    return float(changes.mean()) if changes.size else None


def join(before: Clip, after: Clip) -> float:
    """Mean difference, in grey levels, of one clip's last frame and the next one's first."""
    return float(np.abs(before[-1].astype(np.int16) - after[0]).mean())
