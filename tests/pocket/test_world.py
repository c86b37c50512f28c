"""The pocket world: what a scene renders to, and the facts that follow from a scene."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np

from animegamer_pocket.evaluation.motion import motion_amount
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_scene
from animegamer_pocket.world.scene import MOTIONS, POSITIONS, Scene, is_held_out

BASE = Scene(("Mirel",), "walk", 3, "meadow", False, ("everyday",), POSITIONS["left"], seed=5)


def test_a_scene_renders_to_the_same_clip_every_time() -> None:
    first, second = render(BASE), render(BASE)
    assert first.shape == (17, 96, 144, 3) and first.dtype == np.uint8
    assert np.array_equal(first, second)


def test_measured_motion_rises_with_every_level() -> None:
    for motion in MOTIONS:
        amounts = [
            motion_amount(render(Scene(("Dovan",), motion, level, "beach", False, ("everyday",), 40, seed=1)))
            for level in range(1, 6)
        ]
        assert amounts == sorted(amounts), motion
        assert 3.5 < amounts[4] / amounts[0] < 7, motion


def test_every_part_of_a_scene_is_visible_in_the_first_frame() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"characters": ("Tofi",)},
        {"motion": "sit"},
        {"place": "city"},
        {"night": True},
        {"outfits": ("raincoat",)},
        {"outfits": ("party",)},
        {"start_x": 104},
    )
    first = render(BASE)[0].astype(int)
    for change in changes:
        changed = render(dataclasses.replace(BASE, **change))[0].astype(int)
        assert (np.abs(first - changed).max(axis=-1) > 40).mean() > 0.01, change


def test_training_scenes_never_hold_a_held_out_combination() -> None:
    rng = random.Random(3)
    assert not any(is_held_out(sample_scene(rng)) for _ in range(600))
    assert all(is_held_out(sample_scene(rng, train=False)) for _ in range(20))
