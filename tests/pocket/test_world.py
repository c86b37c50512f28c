"""The pocket world: what a scene renders to, and the facts that follow from a scene."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

import numpy as np

from animegamer_pocket.evaluation.motion import motion_amount
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_scene
from animegamer_pocket.world.scene import (
    CHARACTERS,
    MOTIONS,
    PAIR_POSITIONS,
    PLACES,
    POSITIONS,
    TRAVELLING,
    Scene,
    is_held_out,
    is_held_out_combination,
    next_start_x,
    strengths,
    x_range,
)
from animegamer_rt.state.game import VALUES

BASE = Scene(("Mirel",), "walk", 3, "meadow", False, ("everyday",), POSITIONS["left"], seed=5)


def test_a_scene_renders_to_the_same_clip_every_time() -> None:
    first, second = render(BASE), render(BASE)
    assert first.shape == (17, 96, 144, 3) and first.dtype == np.uint8
    assert np.array_equal(first, second)


def test_the_seed_moves_things_by_a_little_only() -> None:
    clips = [render(dataclasses.replace(BASE, seed=seed)).astype(int) for seed in range(3)]
    other_place = render(dataclasses.replace(BASE, place="forest")).astype(int)
    jitter = max(np.abs(clips[0] - clip).mean() for clip in clips[1:])
    assert 0 < jitter < 0.3 * np.abs(clips[0] - other_place).mean()


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


def test_travel_goes_to_the_side_with_more_room_grows_with_the_level_and_stays_in_the_picture() -> None:
    assert [dataclasses.replace(BASE, level=level).travel for level in range(1, 6)] == [8, 16, 24, 32, 40]
    assert dataclasses.replace(BASE, start_x=104).end_x == 80
    low, high = x_range(1)
    for motion, start_x, level in itertools.product(TRAVELLING, range(low, high, 8), range(1, 6)):
        assert low <= dataclasses.replace(BASE, motion=motion, start_x=start_x, level=level).end_x <= high


def test_character_keeps_its_place_when_another_enters_or_leaves() -> None:
    for name in POSITIONS:
        alone = dataclasses.replace(BASE, motion="wave", start_x=POSITIONS[name])
        assert next_start_x(alone, ("Tofi", "Mirel")) == PAIR_POSITIONS[name]
        pair = Scene(("Mirel", "Tofi"), "wave", 2, "meadow", False, ("everyday", "everyday"), PAIR_POSITIONS[name])
        assert next_start_x(pair, ("Tofi",)) == POSITIONS[name]


def test_the_next_turn_starts_at_the_nearest_named_position_or_for_strangers_at_the_centre() -> None:
    walks = [dataclasses.replace(BASE, motion="walk", level=level) for level in range(1, 6)]
    assert [next_start_x(walk, BASE.characters) for walk in walks] == [40, 64, 64, 64, 64]
    right = dataclasses.replace(BASE, motion="wave", start_x=104)
    assert next_start_x(right, ("Mirel",)) == 104
    assert next_start_x(right, ("Tofi",)) == POSITIONS["centre"]
    assert next_start_x(right, ("Tofi", "Bixo")) == PAIR_POSITIONS["centre"]


def test_training_scenes_never_hold_a_held_out_combination() -> None:
    rng = random.Random(3)
    assert not any(is_held_out(sample_scene(rng)) for _ in range(600))
    assert all(is_held_out(sample_scene(rng, train=False)) for _ in range(20))


def test_about_six_percent_of_combinations_are_held_out() -> None:
    combinations = list(itertools.product(CHARACTERS, MOTIONS, PLACES, (False, True)))
    assert 0.04 < np.mean([is_held_out_combination(*combination) for combination in combinations]) < 0.08


def test_states_are_in_range_and_vary() -> None:
    rng = random.Random(0)
    states = [strengths(sample_scene(rng)) for _ in range(400)]
    assert {state.motion_level for state in states} == {1, 2, 3, 4, 5}
    for name in VALUES:
        values = {getattr(state, name) for state in states}
        assert min(values) >= -5 and max(values) <= 5 and len(values) >= 4
