"""Engines of a fixed cost: whole valid turns that depend on all that a turn depends on."""

from __future__ import annotations

import time

import numpy as np

import animegamer_rt
from animegamer_rt.bundle.loader import Bundle

TEXTS = ["Mia waves.", "Mia runs.", "Tobo runs.", "Tobo flies."]


def last(bundle: Bundle, texts: list[str], seed: int = 7) -> np.ndarray:
    with animegamer_rt.open(bundle, device="simulated:0") as player:
        game = player.start(seed)
        return [game.turn(text).frames for text in texts][-1]


def test_seed_instruction_and_every_turn_of_the_window_show_in_frames_no_two_of_which_are_alike(bundle: Bundle) -> None:
    clips = [last(bundle, TEXTS), last(bundle, TEXTS, seed=8)]
    for number in range(1, 4):
        clips.append(last(bundle, [*TEXTS[:number], "Mia sleeps.", *TEXTS[number + 1 :]]))
    assert len({clip.tobytes() for clip in clips}) == len(clips)
    assert (clips[0].shape, clips[0].dtype) == ((17, 16, 24, 3), np.uint8) and clips[0].std() > 5
    assert len({frame.tobytes() for frame in clips[0]}) == 17


def test_a_turn_of_the_default_plan_takes_the_seconds_it_was_given(bundle: Bundle) -> None:
    with animegamer_rt.open(bundle, device="simulated:0.3") as player:
        started = time.perf_counter()
        player.start(7).turn(TEXTS[0])
        assert time.perf_counter() - started > 0.29  # a busy machine may only make it longer
