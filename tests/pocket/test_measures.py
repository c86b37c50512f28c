"""The measures of pocket's clips: motion, reconstruction, the loss of change; files of clips."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from animegamer_pocket.evaluation.motion import motion_amount
from animegamer_pocket.world import clips as clip_files
from animegamer_pocket.world.sampling import sample_scenes

STILL = np.full((17, 96, 144, 3), 90, np.uint8)


def test_a_sliding_picture_moves_by_its_speed_and_a_still_one_not_at_all() -> None:
    rng = np.random.default_rng(0)
    noise = cv2.GaussianBlur(rng.integers(0, 255, (96, 200, 3)).astype(np.float32), (0, 0), 3)
    wide = np.clip((noise - 128) * 6 + 128, 0, 255).astype(np.uint8)
    clip = np.stack([wide[:, 2 * frame : 2 * frame + 144] for frame in range(17)])
    assert motion_amount(clip) == pytest.approx(2.0, abs=0.3)
    assert motion_amount(STILL) == 0.0


def test_written_clips_read_back_and_depend_on_the_seed_only(tmp_path: Path) -> None:
    scenes = sample_scenes(3, seed=8)
    clip_files.write(scenes, tmp_path)
    clips, read = clip_files.read(tmp_path)
    assert read == scenes == sample_scenes(3, seed=8) and scenes != sample_scenes(3, seed=9)
    assert isinstance(clips, np.memmap) and np.array_equal(clips, clip_files.render_many(scenes))
