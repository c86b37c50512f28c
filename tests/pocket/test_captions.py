"""Captions of the pocket world: said, left out, and read back."""

from __future__ import annotations

import random

import pytest

from animegamer_pocket.world.captions import PARTS, caption, paraphrase, parse, said_parts
from animegamer_pocket.world.sampling import sample_game, sample_scene
from animegamer_pocket.world.scene import Scene, is_held_out

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


def test_a_first_turn_fills_what_is_unsaid_with_the_defaults() -> None:
    assert parse("Tofi jumps") == Scene(("Tofi",), "jump", 3, "meadow", False, ("everyday",), 64)


def test_a_later_turn_keeps_what_is_unsaid() -> None:
    first = parse("Mirel in a raincoat wildly runs through the forest at night")
    second = parse("now gently wave", [first])
    assert second.characters == ("Mirel",) and second.outfits == ("raincoat",)
    assert second.place == "forest" and second.night and second.start_x == first.end_x == 104
    third = parse("Mirel in everyday clothes sits", [first, second])
    assert third.outfits == ("everyday",)
    dance = parse("Bixo and Mirel dance", [first, second])
    assert dance.outfits == ("everyday", "raincoat")


def test_training_games_hold_no_held_out_turn_and_the_others_end_with_one() -> None:
    for seed in range(30):
        assert not any(is_held_out(scene) for scene, _ in sample_game(random.Random(seed), 4))
        assert is_held_out(sample_game(random.Random(seed), 3, train=False)[-1][0])


def test_a_paraphrase_says_exactly_what_is_not_left_out() -> None:
    rng = random.Random(1)
    for _ in range(200):
        scene = sample_scene(rng)
        omit = {part for part in PARTS if rng.random() < 0.5}
        said = said_parts(paraphrase(scene, rng, omit))
        if "characters" in omit:
            omit |= {"outfit"}
        assert not said & omit
        assert {"adverb", "place", "time"} - omit <= said


@pytest.mark.parametrize(("text", "missing"), [("wave gently", "no character"), ("Mirel thinks", "no motion")])
def test_a_text_that_names_too_little_is_refused(text: str, missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        parse(text)
