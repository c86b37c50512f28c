"""Random games of the pocket world with the instruction of each turn: a training corpus."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping

from animegamer_pocket.world.scene import (
    CHARACTERS,
    MOTIONS,
    OUTFITS,
    PLACES,
    POSITIONS,
    Scene,
    follow,
    is_held_out,
)
from animegamer_rt.state.game import left_last

from .change import default_outfit
from .cjk import cjk_turn
from .classes import aside_turn, class_turn
from .odd import odd_turn
from .plan import FIRST_MOTION
from .sentences import Utterance, say
from .story import Story
from .voices import VOICES, Voice

_SHARES = {"odd": 0.06, "class": 0.38, "cjk": 0.07, "aside": 0.03}
"""How often a turn is of another kind than an ordinary sentence."""

_TRIES = 20
TURNS = (3, 8)
"""Minimum and maximum number of turns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the requested scene, and the instruction."""

    scene: Scene
    utterance: Utterance


def sample_game(rng: random.Random, turns: int | None = None, train: bool = True) -> list[Turn]:
    """A random game. With `train`, no turn has a held-out combination of the world.

    A game has one or two voices; its characters come, leave, move, change clothes, rest and start again.
    """
    turns = turns or rng.randint(*TURNS)
    voices = rng.choices(VOICES, [voice.weight for voice in VOICES], k=2)
    game: list[Turn] = []
    worn: dict[str, str] = {}
    left: tuple[str, ...] = ()
    while len(game) < turns:
        before = game[-1].scene if game else None
        story = Story(rng, before, game[-2].scene if len(game) > 1 else None, worn)
        turn = _turn(story, voices[rng.random() < 0.3], left)
        if train and is_held_out(turn.scene):
            continue
        game.append(turn)
        if before is not None:
            left = left_last(before.characters, left, turn.scene.characters)
        worn.update(zip(turn.scene.characters, turn.scene.outfits, strict=True))
    return game


def _turn(story: Story, voice: Voice, left: tuple[str, ...]) -> Turn:
    rng, before, worn = story.rng, story.before, story.worn

    def ordinary() -> tuple[Scene, Utterance]:
        scene = next_scene(rng, before, worn, left)
        return scene, say(rng, before, scene, voice, worn, left=left)

    kind = rng.choices((*_SHARES, "ordinary"), (*_SHARES.values(), 1 - sum(_SHARES.values())))[0]
    found = None
    if kind == "odd":
        found = odd_turn(story)
    elif kind == "class":
        found = next(filter(None, (class_turn(story) for _ in range(_TRIES))), None)
    elif kind == "cjk":
        found = cjk_turn(story)
    elif kind == "aside":
        found = aside_turn(rng, ordinary())
    return Turn(*(found or ordinary()))


def next_scene(rng: random.Random, before: Scene | None, worn: Mapping[str, str], left: tuple[str, ...] = ()) -> Scene:
    """A scene that may follow: usually one or two things change. left: who left last, and sometimes returns."""
    people = _next_people(rng, before, left)
    motion = before.motion if before and rng.random() < 0.3 else rng.choice(MOTIONS)
    place, night = (before.place, before.night) if before else ("meadow", False)
    if rng.random() < (0.38 if before else 0.8):
        place = rng.choice(PLACES)
    if rng.random() < (0.22 if before else 0.45):
        night = rng.random() < 0.55 if before is None else not night
    outfits = [default_outfit(name, before, worn) for name in people]
    if rng.random() < 0.3:
        who = range(len(people)) if rng.random() < 0.5 else [rng.randrange(len(people))]
        outfit = rng.choice(OUTFITS)
        for index in who:
            outfits[index] = outfit
    changed = before is None or before.motion != motion
    level = 3 if changed or before is None else before.level
    if rng.random() < 0.36:
        level = rng.randint(1, 5)
    if before is None and rng.random() < 0.1:
        motion, level = FIRST_MOTION, 3
    position = rng.choice(tuple(POSITIONS)) if rng.random() < (0.03 if before else 0.08) else ""
    scene = Scene(people, motion, level, place, night, tuple(outfits), seed=rng.getrandbits(31))
    return follow(before, scene, position)


def _next_people(rng: random.Random, before: Scene | None, left: tuple[str, ...]) -> tuple[str, ...]:
    chance = rng.random()
    if before is None:
        return tuple(rng.sample(CHARACTERS, 2 if chance < 0.3 else 1))
    old = before.characters
    others = [name for name in CHARACTERS if name not in old]
    if left and rng.random() < 0.3:
        return (*old, *left) if len(old) + len(left) == 2 and rng.random() < 0.65 else left
    if chance < 0.5:
        return old
    if len(old) == 1:
        if chance < 0.78:
            return (*old, rng.choice(others))
        return tuple(rng.sample(others, 2 if chance > 0.95 else 1))
    if chance < 0.74:
        return (rng.choice(old),)
    if chance < 0.84:
        return (rng.choice(old), rng.choice(others))
    return tuple(rng.sample(others, 2 if chance > 0.95 else 1))


def json_lines(games: int, seed: int) -> Iterator[dict[str, object]]:
    """The turns of `games` random games, in the schema of an evaluation file.

    A turn with `unknown` contains words that pocket does not know; its labels are the nearest meaning.
    """
    rng = random.Random(seed)
    for game in range(1, games + 1):
        for number, turn in enumerate(sample_game(rng), 1):
            yield {"game": game, "turn": number, "say": turn.utterance.text, **turn.utterance.labels}
