"""Figures that compare two arrays or two clips: relative error, PSNR and SSIM; and the share of what is right.

Source of SSIM: Wang et al. 2004 (11-pixel Gaussian window, sigma 1.5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt


def relative_error(found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> float:
    """|found - expected| / |expected|, in the Euclidean norm over all elements."""
    true = expected.astype(np.float64).reshape(-1)
    norm = float(np.linalg.norm(true))
    return float(np.linalg.norm(found.astype(np.float64).reshape(-1) - true)) / max(norm, 1e-30)


_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def psnr(found: npt.NDArray[Any], true: Clip) -> float:
    """Peak signal-to-noise ratio of clips of one shape, in dB, of values 0..255; 100 when they are equal."""
    squared = float(np.mean((found.astype(np.float32) - true) ** 2))
    return min(100.0, 10 * float(np.log10(255.0**2 / max(squared, 1e-9))))


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


def share(right: Iterable[bool]) -> float | None:
    """The share of true values, rounded to four places; None if there are none at all."""
    values = list(right)
    return round(sum(values) / len(values), 4) if values else None


Clip = npt.NDArray[np.uint8]
