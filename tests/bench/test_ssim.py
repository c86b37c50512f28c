"""Structural similarity of two frames."""

from __future__ import annotations

import numpy as np
import pytest

from animegamer_bench.turns import ssim


def test_similarity_is_that_of_opencvs_gaussian_window_with_mirrored_edges() -> None:
    random = np.random.default_rng(0)
    frame = random.integers(0, 255, (96, 144, 3), dtype=np.uint8)
    noisy = (frame // 2 + random.integers(0, 100, frame.shape)).astype(np.uint8)
    assert ssim(frame, frame) == 1
    assert ssim(frame, noisy) == ssim(noisy, frame) == pytest.approx(0.7038752050609065)  # by cv2.GaussianBlur
