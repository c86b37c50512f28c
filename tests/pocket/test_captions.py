"""Captions of the pocket world: said, left out, and read back."""

from __future__ import annotations

import random

import pytest

from animegamer_pocket.world.captions import caption, parse
from animegamer_pocket.world.sampling import sample_game
from animegamer_pocket.world.scene import Scene

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
