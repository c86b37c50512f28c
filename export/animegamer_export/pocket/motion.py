"""How much a clip moves: mean optical flow, and the paper's two figures against the instructed level (ACC-F, MAE-F).

Flow is Farneback's between neighbouring frames; magnitudes of 0.2 px a frame and less are filtered out; the mean of the
rest over the clip is its motion amount. It does not know what the clip shows.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

FILTER_PX = 0.2
"""Flow at or under this, px a frame, is noise (paper, section on motion metrics)."""


def flow_magnitudes(frames: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The flow's length in px a frame, float32 [T-1, H, W], of a clip uint8 [T, H, W, 3]."""
    grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    lengths = []
    for first, second in zip(grey[:-1], grey[1:], strict=True):
        start = np.zeros((*first.shape, 2), np.float32)
        flow = cv2.calcOpticalFlowFarneback(first, second, start, 0.5, 3, 15, 3, 5, 1.2, 0)
        lengths.append(np.hypot(flow[..., 0], flow[..., 1]))
    return np.asarray(lengths, np.float32)


def motion_amount(frames: npt.NDArray[np.uint8]) -> float:
    """The mean flow in px a frame over the pixels that move; 0.0 for a still clip."""
    lengths = flow_magnitudes(frames)
    moving = lengths[lengths > FILTER_PX]
    return float(moving.mean()) if moving.size else 0.0
