"""Suggestions continue what was typed with what the world knows."""

from __future__ import annotations

from animegamer_rt.bundle.manifest import World
from animegamer_rt.play.suggestions import completions

WORLD = World(
    characters=("Mia", "Tomo"),
    motions=("wave", "ride a bicycle"),
    adverbs=("gently", "wildly"),
    places=("day town", "night town", "day beach"),
    examples=("Character: Mia; Motion: gently wave; Background: day town.",),
)


def test_an_empty_line_offers_the_examples_and_the_first_field() -> None:
    assert completions("", WORLD) == [*WORLD.examples, "Character: "]


def test_a_field_offers_only_what_belongs_there() -> None:
    assert completions("Character: ", WORLD) == ["Character: Mia", "Character: Tomo"]
    assert completions("Character: Mia; Background: day ", WORLD) == [
        "Character: Mia; Background: day town",
        "Character: Mia; Background: day beach",
    ]
    assert completions("Motion: wildly r", WORLD) == ["Motion: wildly ride a bicycle"]


def test_free_text_offers_words_that_go_on_from_the_last_ones() -> None:
    assert completions("Tomo and mi", WORLD) == ["Tomo and Mia"]
    assert completions("Mia starts to ride a", WORLD) == ["Mia starts to ride a bicycle"]


def test_places_without_a_time_of_day_are_offered_with_both() -> None:
    world = World(places=("town",))
    assert completions("Background: ", world) == ["Background: town", "Background: day town", "Background: night town"]
