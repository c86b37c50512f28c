"""Structural similarity of two frames. Source: Wang et al. 2004 (11-pixel Gaussian window, sigma 1.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_WINDOW = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
_WINDOW /= _WINDOW.sum()
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
Image = npt.NDArray[np.float64]


def ssim(first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]) -> float:
    """Structural similarity of two frames u8 [H, W, C], mean over pixels and channels; 1 when equal."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    mean_a, mean_b = _blur(a), _blur(b)
    var_a, var_b = _blur(a * a) - mean_a**2, _blur(b * b) - mean_b**2
    covariance = _blur(a * b) - mean_a * mean_b
    top = (2 * mean_a * mean_b + _C1) * (2 * covariance + _C2)
    return float(np.mean(top / ((mean_a**2 + mean_b**2 + _C1) * (var_a + var_b + _C2))))


def _blur(image: Image) -> Image:
    """[H, W, C], blurred along height and width; beyond its edges the image is mirrored."""
    for _ in range(2):
        mirrored = np.pad(image, ((5, 5), (0, 0), (0, 0)), mode="reflect")
        rows = (weight * mirrored[k : k + len(image)] for k, weight in enumerate(_WINDOW))
        image = np.asarray(sum(rows)).swapaxes(0, 1)
    return image
