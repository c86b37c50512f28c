"""The measures of pocket's clips: motion, reconstruction, the loss of change; files of clips."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from animegamer_pocket.evaluation.motion import fit_scale, motion_amount, motion_figures
from animegamer_pocket.evaluation.reconstruction import vae_figures
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


def test_thresholds_fall_between_the_levels_and_need_clips_of_each() -> None:
    amounts = [level * 0.5 + shift for level in range(1, 6) for shift in (-0.05, 0.05)]
    levels = [level for level in range(1, 6) for _ in range(2)]
    scale = fit_scale(amounts, levels)
    assert scale.thresholds == pytest.approx((0.75, 1.25, 1.75, 2.25))
    figures = motion_figures(amounts, levels, scale)
    assert figures["acc_f"] == 1.0 and figures["mae_f_levels"] == 0.0 and figures["amount_ratio_5_to_1"] == 5.0
    assert motion_figures([0.5] * 2, [1, 3], scale)["mae_f_levels"] == 1.0
    with pytest.raises(ValueError, match=r"level \[5\]"):
        fit_scale([1.0, 2.0, 3.0, 4.0], [1, 2, 3, 4])


def test_vae_figures_are_psnr_by_level_and_a_wrong_shape_is_refused() -> None:
    figures = vae_figures(lambda clips: np.clip(clips.astype(int) + 4, 0, 255).astype(np.uint8), clips=5)
    assert set(figures["psnr_db_by_level"]) == {"1", "2", "3", "4", "5"}
    assert figures["psnr_db"] == pytest.approx(20 * np.log10(255 / 4), abs=0.3)
    assert vae_figures(lambda clips: clips, clips=1)["psnr_db"] == 100.0
    with pytest.raises(ValueError, match="expected uint8"):
        vae_figures(lambda clips: clips[:, :9], clips=5)


def test_written_clips_read_back_and_depend_on_the_seed_only(tmp_path: Path) -> None:
    scenes = sample_scenes(3, seed=8)
    clip_files.write(scenes, tmp_path)
    clips, read = clip_files.read(tmp_path)
    assert read == scenes == sample_scenes(3, seed=8) and scenes != sample_scenes(3, seed=9)
    assert isinstance(clips, np.memmap) and np.array_equal(clips, clip_files.render_many(scenes))
