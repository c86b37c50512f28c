"""Scenes as text: the reference caption, free paraphrases, and the parser of both.

What a text omits comes from the game so far, or in a first turn from the defaults: the meadow, day, everyday clothes,
the centre, level 3.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence

from .scene import (
    ADVERBS,
    CHARACTERS,
    DEFAULT_LEVEL,
    DEFAULT_NIGHT,
    DEFAULT_OUTFIT,
    DEFAULT_PLACE,
    MOTIONS,
    OUTFITS,
    PLACES,
    POSITIONS,
    SPOTS,
    Scene,
    follow,
)

PARTS = ("characters", "adverb", "place", "time", "outfit", "position")
"""The parts that a paraphrase may omit."""

OUTFIT_WORDS = {"everyday": "everyday clothes", "raincoat": "a raincoat", "party": "party clothes"}
_PLACE_WORDS = {
    "meadow": ("in the meadow", "across the meadow"),
    "forest": ("in the forest", "through the forest"),
    "beach": ("at the beach", "on the beach"),
    "city": ("in the city", "through the city"),
    "room": ("in the room", "in a room"),
    "snowfield": ("in the snowfield", "on the snowfield"),
    "desert": ("in the desert", "across the desert"),
    "cloudland": ("in cloudland", "up in cloudland"),
}
_VERBS = {
    "walk": ("walk", "walks", "walking"),
    "run": ("run", "runs", "running"),
    "jump": ("jump", "jumps", "jumping"),
    "wave": ("wave", "waves", "waving"),
    "dance": ("dance", "dances", "dancing"),
    "sit": ("sit", "sits", "sitting"),
    "lie down": ("lie down", "lies down", "lying down"),
    "fly": ("fly", "flies", "flying"),
    "bow": ("bow", "bows", "bowing"),
    "stand": ("stand", "stands", "standing"),
}
POSITION_WORDS = {"left": "on the left", "centre": "in the middle", "right": "on the right"}
SPOT_WORDS = {spot: f"at {spot.replace(' ', ' facing ')}" for spot in SPOTS}
"""Where somebody stands in a complete caption, by the spot's name: "at 3 facing left"."""


def caption(scene: Scene) -> str:
    """The reference form: `Character: A in a raincoat and B; Motion: wildly run; Background: night city.`"""
    time = "night" if scene.night else "day"
    return (
        f"Character: {_names(scene)}; Motion: {ADVERBS[scene.level - 1]} {scene.motion}; "
        f"Background: {time} {scene.place}."
    )


def complete_caption(scene: Scene) -> str:
    """The caption that the instruction reader writes for a scene, with everybody's clothes and the spot.

    The only form of an instruction that the predictor of a bundle with a reader sees.
    """
    return caption(scene).replace(
        f"Character: {_names(scene)};",
        f"Character: {_names(scene, all_clothes=True)} {SPOT_WORDS[scene.spot]};",
    )


def _names(scene: Scene, all_clothes: bool = False) -> str:
    named = [
        f"{name} in {OUTFIT_WORDS[outfit]}" if outfit != DEFAULT_OUTFIT or all_clothes else name
        for name, outfit in zip(scene.characters, scene.outfits, strict=True)
    ]
    return " and ".join(named)


def paraphrase(scene: Scene, rng: random.Random, omit: Collection[str] = ()) -> str:
    """The scene in free words, or in a shortened reference form.

    omit: the PARTS to leave out. Otherwise even the everyday outfit is named.
    """
    assert set(omit) <= set(PARTS), f"unknown parts to leave out: {sorted(set(omit) - set(PARTS))}"
    adverb = "" if "adverb" in omit else ADVERBS[scene.level - 1]
    names = " and ".join(scene.characters) if "outfit" in omit else _names(scene, all_clothes=True)
    names = "" if "characters" in omit else names
    where = "" if "place" in omit else rng.choice(_PLACE_WORDS[scene.place])
    hour = "" if "time" in omit else ("at night" if scene.night else rng.choice(("by day", "during the day")))
    named = next((name for name in POSITIONS if follow(None, scene, name).start_x == scene.start_x), None)
    spot = POSITION_WORDS[named] if named is not None and "position" not in omit else ""
    if names and rng.random() < 0.4:
        return _short_reference(scene, names, adverb, spot, omit)
    return _sentence(scene, rng, names, adverb, (spot, where, hour))


def _short_reference(scene: Scene, names: str, adverb: str, spot: str, omit: Collection[str]) -> str:
    background = ["" if "time" in omit else "night" if scene.night else "day", "" if "place" in omit else scene.place]
    parts = [_joined("Character:", names, spot), _joined("Motion:", adverb, scene.motion)]
    if any(background):
        parts.append(_joined("Background:", *background))
    return "; ".join(parts) + "."


def _sentence(scene: Scene, rng: random.Random, names: str, adverb: str, tail: tuple[str, str, str]) -> str:
    plain, third, going = _VERBS[scene.motion]
    if scene.motion == "fly" and rng.random() < 0.5:
        plain, third, going = (f"{word} on a broom" for word in (plain, third, going))
    if not names:
        start = rng.choice(("", "now", "then", "please"))
        text = _joined(start, adverb, plain, *tail) if rng.random() < 0.5 else _joined(start, plain, adverb, *tail)
        return _closed(text, rng)
    verb = plain if scene.is_pair else third
    spot, where, hour = tail
    forms = (
        _joined(rng.choice(("make", "let")), names, adverb, plain, *tail),
        _joined(names, verb, adverb, *tail),
        _joined(names, adverb, verb, *tail),
        _joined(names, "are" if scene.is_pair else "is", adverb, going, *tail),
        _joined("now", names, adverb, verb, *tail),
        _joined(f"{_joined(hour, where)},".lstrip(",") if hour or where else "", names, adverb, verb, spot),
        _joined("I want", names, "to", plain, adverb, *tail),
    )
    return _closed(rng.choice(forms), rng)


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)


def _closed(text: str, rng: random.Random) -> str:
    text = text[0].upper() + text[1:]
    return text + rng.choice((".", ".", "", "!"))


def parse(text: str, game: Sequence[Scene] = (), seed: int = 0) -> Scene:
    """The scene that a text asks for after the earlier turns of a game.

    Raises ValueError if the text names no motion, or no character in a game's first turn.
    """
    lowered = text.lower()
    previous = game[-1] if game else None
    found = sorted((match.start(), name) for name in CHARACTERS if (match := _word(name.lower(), lowered)))
    characters = tuple(name for _, name in found[:2])
    if not characters:
        if previous is None:
            raise ValueError(f"{text!r} names no character; expected one of {', '.join(CHARACTERS)}")
        characters = previous.characters
    motion = next((motion for motion in MOTIONS if any(_word(verb, lowered) for verb in _VERBS[motion])), None)
    if motion is None:
        raise ValueError(f"{text!r} names no motion; expected one of {', '.join(MOTIONS)}")
    level = next((index + 1 for index, adverb in enumerate(ADVERBS) if _word(adverb, lowered)), DEFAULT_LEVEL)
    place = next((place for place in PLACES if _word(place, lowered)), previous.place if previous else DEFAULT_PLACE)
    if _word("night", lowered) or _word("day", lowered):
        night = _word("night", lowered) is not None
    else:
        night = previous.night if previous else DEFAULT_NIGHT
    worn = {name: outfit for turn in game for name, outfit in zip(turn.characters, turn.outfits, strict=True)}
    outfits_named = _outfits(lowered, [start for start, _ in found[:2]], len(characters))
    outfits = tuple(outfits_named[index] or worn.get(name, DEFAULT_OUTFIT) for index, name in enumerate(characters))
    spot = next((name for name, words in POSITION_WORDS.items() if words in lowered), "")
    return follow(previous, Scene(characters, motion, level, place, night, outfits, seed=seed), spot)


def said_parts(text: str) -> frozenset[str]:
    """The PARTS that a text names. The others come from the game so far or from the defaults."""
    lowered = text.lower()
    words = {
        "characters": [name.lower() for name in CHARACTERS],
        "adverb": ADVERBS,
        "place": PLACES,
        "time": ("day", "night"),
        "outfit": OUTFITS,
        "position": tuple(POSITION_WORDS.values()),
    }
    return frozenset(part for part in PARTS if any(_word(word, lowered) for word in words[part]))


def _word(word: str, text: str) -> re.Match[str] | None:
    return re.search(rf"\b{word}\b", text)


def _outfits(lowered: str, starts: list[int], characters: int) -> list[str | None]:
    """The outfit named after each name and before the next, or None. Without names it applies to everybody."""
    starts = starts or [0] * characters
    ends = [*(start or len(lowered) for start in starts[1:]), len(lowered)]
    return [
        next((outfit for outfit in OUTFITS if _word(outfit, lowered[start:end])), None)
        for start, end in zip(starts, ends, strict=True)
    ]
