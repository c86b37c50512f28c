"""Relative error and PSNR of arrays and clips, and shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


def relative_error(found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> float:
    """|found - expected| / |expected|, in the Euclidean norm over all elements."""
    true = expected.astype(np.float64).reshape(-1)
    norm = float(np.linalg.norm(true))
    return float(np.linalg.norm(found.astype(np.float64).reshape(-1) - true)) / max(norm, 1e-30)


def psnr(found: npt.NDArray[Any], true: Clip) -> float:
    """Peak signal-to-noise ratio of clips of one shape, in dB, of values 0..255; 100 when they are equal."""
    squared = float(np.mean((found.astype(np.float32) - true) ** 2))
    return min(100.0, 10 * float(np.log10(255.0**2 / max(squared, 1e-9))))


def share(right: Iterable[bool]) -> float | None:
    """The share of true values, rounded to four places; None if there are no values."""
    values = list(right)
    return round(sum(values) / len(values), 4) if values else None


Clip = npt.NDArray[np.uint8]
