"""Random scenes and games of the pocket world, for training and for held-out evaluation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .captions import caption, paraphrase
from .scene import (
    CHARACTERS,
    DEFAULT_LEVEL,
    DEFAULT_NIGHT,
    DEFAULT_OUTFIT,
    DEFAULT_PLACE,
    MOTIONS,
    OUTFITS,
    PLACES,
    POSITIONS,
    Scene,
    follow,
    is_held_out,
    x_range,
)


def sample_scene(rng: random.Random, train: bool = True, motions: Sequence[str] = MOTIONS) -> Scene:
    """A random scene; three in ten have two characters. Its combination is held out if and only if `train` is False."""
    while True:
        count = 2 if rng.random() < 0.3 else 1
        characters = tuple(rng.sample(CHARACTERS, count))
        low, high = x_range(count)
        scene = Scene(
            characters=characters,
            motion=rng.choice(motions),
            level=rng.randint(1, 5),
            place=rng.choice(PLACES),
            night=rng.random() < 0.5,
            outfits=tuple(rng.choice(OUTFITS) for _ in range(count)),
            start_x=rng.randrange(low, high + 1, 8),
            seed=rng.getrandbits(31),
            facing=rng.choice((-1, 1)),
            before=rng.choice(motions) if rng.random() < 0.5 else "",
        )
        if is_held_out(scene) != train:
            return scene


def sample_scenes(count: int, seed: int, train: bool = True, motions: Sequence[str] = MOTIONS) -> list[Scene]:
    """Random scenes. All have held-out combinations if `train` is False, else none."""
    rng = random.Random(seed)
    return [sample_scene(rng, train, motions) for _ in range(count)]


def sample_game(
    rng: random.Random, turns: int, train: bool = True, motions: Sequence[str] = MOTIONS
) -> list[tuple[Scene, str]]:
    """A random game: each turn's scene, and an instruction that means this scene after the earlier turns.

    With `train` no turn has a held-out combination; else only the last one does.
    """
    while True:
        game: list[tuple[Scene, str]] = []
        for _ in range(turns):
            game.append(_sample_turn(rng, [scene for scene, _ in game], motions))
        if train and not any(is_held_out(scene) for scene, _ in game):
            return game
        if not train and is_held_out(game[-1][0]):
            return game


def _sample_turn(rng: random.Random, past: list[Scene], motions: Sequence[str]) -> tuple[Scene, str]:
    previous = past[-1] if past else None
    count = 2 if rng.random() < 0.3 else 1
    same_characters = previous is not None and rng.random() < 0.6
    characters = previous.characters if previous and same_characters else tuple(rng.sample(CHARACTERS, count))
    worn = {name: outfit for turn in past for name, outfit in zip(turn.characters, turn.outfits, strict=True)}
    kept = tuple(worn.get(name, DEFAULT_OUTFIT) for name in characters)
    change = rng.random() < (0.2 if previous else 0.35)
    outfits = tuple(rng.choice(OUTFITS) for _ in characters) if change else kept
    place, night = (previous.place, previous.night) if previous else (DEFAULT_PLACE, DEFAULT_NIGHT)
    if rng.random() < (0.4 if previous else 0.85):
        place, night = rng.choice(PLACES), rng.random() < 0.5
    position = rng.choice(tuple(POSITIONS)) if rng.random() < (0.05 if previous else 0.25) else ""
    scene = Scene(characters, rng.choice(motions), rng.randint(1, 5), place, night, outfits, seed=rng.getrandbits(31))
    scene = follow(previous, scene, position)
    omit = set() if position else {"position"}
    if same_characters and outfits == kept and rng.random() < 0.3:
        omit.add("characters")
    if scene.level == DEFAULT_LEVEL and rng.random() < 0.4:
        omit.add("adverb")
    if outfits == kept:
        omit.add("outfit")
    past_place, past_night = (previous.place, previous.night) if previous else (DEFAULT_PLACE, DEFAULT_NIGHT)
    if place == past_place and rng.random() < 0.7:
        omit.add("place")
    if night == past_night and rng.random() < 0.7:
        omit.add("time")
    if not omit - {"position", "outfit"} and not position and _caption_is_enough(scene, worn) and rng.random() < 0.6:
        return scene, caption(scene)
    return scene, paraphrase(scene, rng, omit)


def _caption_is_enough(scene: Scene, worn: dict[str, str]) -> bool:
    """A caption omits everyday clothes, so it is unambiguous only if they were worn before, or nothing was."""
    return all(
        outfit != DEFAULT_OUTFIT or worn.get(name, DEFAULT_OUTFIT) == DEFAULT_OUTFIT
        for name, outfit in zip(scene.characters, scene.outfits, strict=True)
    )
