"""The pocket world: what a scene renders to, the facts that follow from it, and its captions."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from animegamer_pocket.evaluation.motion import motion_amount
from animegamer_pocket.world.captions import caption, parse
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_game, sample_scene
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
            for level in (1, 3, 5)
        ]
        assert amounts == sorted(amounts), motion
        assert 3.5 < amounts[2] / amounts[0] < 7, motion


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


ALONE = Scene(("Dovan",), "lie down", 5, "beach", True, ("everyday",))
PAIR = Scene(("Zelki", "Bixo"), "dance", 2, "city", False, ("raincoat", "everyday"), 56)


def test_the_reference_form_is_exact_and_reads_back_to_its_scene() -> None:
    assert caption(ALONE) == "Character: Dovan; Motion: wildly lie down; Background: night beach."
    assert caption(PAIR) == "Character: Zelki in a raincoat and Bixo; Motion: gently dance; Background: day city."
    assert [parse(caption(scene)) for scene in (ALONE, PAIR)] == [ALONE, PAIR]


@pytest.mark.parametrize("train", [True, False])
def test_every_instruction_of_a_game_reads_back_to_its_scene(train: bool) -> None:
    for seed in range(150):
        past: list[Scene] = []
        for scene, instruction in sample_game(random.Random(seed), 4, train=train):
            assert parse(instruction, past, scene.seed) == scene, instruction
            past.append(scene)


def test_a_later_turn_keeps_what_is_unsaid() -> None:
    first = parse("Mirel in a raincoat wildly runs through the forest at night")
    second = parse("now gently wave", [first])
    assert second.characters == ("Mirel",) and second.outfits == ("raincoat",)
    assert second.place == "forest" and second.night and second.start_x == first.end_x == 104
    third = parse("Mirel in everyday clothes sits", [first, second])
    assert third.outfits == ("everyday",)
    dance = parse("Bixo and Mirel dance", [first, second])
    assert dance.outfits == ("everyday", "raincoat")
