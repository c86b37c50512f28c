"""The pocket world: what a scene renders to, the facts that follow from it, its captions, its motion and its files."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from animegamer_pocket.evaluation.motion import motion_amount
from animegamer_pocket.world import clips as clip_files
from animegamer_pocket.world.captions import caption, parse
from animegamer_pocket.world.poses import clip_poses
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_game, sample_scene, sample_scenes
from animegamer_pocket.world.scene import (
    CHARACTERS,
    COLUMNS_PX,
    MOTIONS,
    POSITIONS,
    TRAVELLING,
    Scene,
    follow,
    is_held_out,
)

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


def meadow_clip(motion: str, level: int, *people: str) -> np.ndarray:
    scene = Scene(people, motion, level, "meadow", False, ("everyday",) * len(people), seed=1)
    return render(scene).astype(np.int16)


@pytest.mark.parametrize("level", [1, 5])
@pytest.mark.parametrize("people", [*((name,) for name in CHARACTERS), ("Mirel", "Dovan"), ("Bixo", "Tofi")])
def test_every_two_motions_look_different_whoever_makes_them(people: tuple[str, ...], level: int) -> None:
    clips = {motion: meadow_clip(motion, level, *people) for motion in MOTIONS}
    for one, other in itertools.combinations(MOTIONS, 2):
        assert np.abs(clips[one] - clips[other]).mean() >= 12, (one, other)


def test_no_head_moves_so_fast_that_it_smears() -> None:
    """At most 4 px a frame at the strongest level; 9 where a clip leaves the last one's pose."""
    for motion, before in itertools.product(MOTIONS, ("", *MOTIONS)):
        heads = [pose.head for pose in clip_poses(motion, 5, before)]
        fastest = max(math.dist(*pair) for pair in itertools.pairwise(heads))
        assert fastest <= (9 if before else 4.1), (motion, before, fastest)


def test_clips_of_one_place_join() -> None:
    """With the same people a clip starts with the picture that the last one ended with, unless they are placed anew."""
    rng, joins, dressed = random.Random(5), [], []
    for _ in range(30):
        game = [scene for scene, _ in sample_game(rng, 5)]
        for before, after in itertools.pairwise(game):
            if (before.place, before.night) != (after.place, after.night) or after.spot != follow(before, after).spot:
                continue
            step = np.abs(render(before)[-1].astype(np.int16) - render(after, 1)[0]).mean()
            if before.characters == after.characters:
                (joins if before.outfits == after.outfits else dressed).append(step)
    assert len(joins) > 30 and max(joins) < 0.1
    assert len(dressed) > 3 and max(dressed) <= 12 and np.mean(dressed) <= 10


def test_who_stays_keeps_place_side_and_facing_when_another_comes_or_leaves() -> None:
    for x, facing, level in itertools.product(COLUMNS_PX, (-1, 1), (1, 5)):
        alone = dataclasses.replace(BASE, start_x=x, facing=facing, level=level)
        for people in (("Mirel", "Tofi"), ("Tofi", "Mirel")):
            pair = follow(alone, Scene(people, "bow", 2, "meadow", False, ("everyday", "party")))
            side = pair.characters.index("Mirel")
            assert abs(pair.start_x + (48 * side - 24) - alone.end_x) <= 8 and pair.facing == alone.direction
            assert pair.before == "walk" and pair.outfits[1 - side] == ("everyday", "party")[people.index("Tofi")]
            again = follow(pair, BASE)
            assert abs(again.start_x - alone.end_x) <= 8 and (again.facing, again.before) == (pair.facing, "bow")
            named_otherwise = dataclasses.replace(pair, characters=pair.characters[::-1])
            assert follow(pair, named_otherwise).characters == pair.characters


def test_travel_turns_at_the_edge_grows_with_the_level_and_stays_in_the_picture() -> None:
    assert [dataclasses.replace(BASE, level=level).travel for level in range(1, 6)] == [8, 16, 24, 24, 32]
    assert dataclasses.replace(BASE, start_x=104).end_x == 80
    for motion, start_x, facing, level in itertools.product(TRAVELLING, COLUMNS_PX, (-1, 1), range(1, 6)):
        scene = dataclasses.replace(BASE, motion=motion, start_x=start_x, facing=facing, level=level)
        assert scene.end_x in COLUMNS_PX and scene.travel >= 8


def test_strangers_start_at_the_centre_and_a_named_position_faces_the_middle() -> None:
    right = dataclasses.replace(BASE, motion="wave", start_x=104, facing=-1)
    tofi = dataclasses.replace(BASE, characters=("Tofi",))
    assert (follow(right, tofi).start_x, follow(right, BASE).start_x) == (POSITIONS["centre"], 104)
    named = [follow(right, BASE, name) for name in POSITIONS]
    assert [(scene.start_x, scene.facing) for scene in named] == [(40, 1), (64, -1), (104, -1)]


def test_training_scenes_never_hold_a_held_out_combination() -> None:
    rng = random.Random(3)
    assert not any(is_held_out(sample_scene(rng)) for _ in range(600))
    assert all(is_held_out(sample_scene(rng, train=False)) for _ in range(20))


ALONE = Scene(("Dovan",), "lie down", 5, "beach", True, ("everyday",))
PAIR = Scene(("Zelki", "Bixo"), "dance", 2, "city", False, ("raincoat", "everyday"), 64)


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
    assert second.place == "forest" and second.night and second.start_x == first.end_x == 96
    assert (first.before, second.before, second.facing) == ("", "run", 1)
    third = parse("Mirel in everyday clothes sits", [first, second])
    assert third.outfits == ("everyday",)
    dance = parse("Bixo and Mirel dance", [first, second])
    assert dance.outfits == ("everyday", "raincoat")


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
