"""The change between two scenes of a game, and what a text must say about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from animegamer_pocket.world.scene import (
    DEFAULT_LEVEL,
    DEFAULT_NIGHT,
    DEFAULT_OUTFIT,
    DEFAULT_PLACE,
    POSITIONS,
    Scene,
    follow,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """The characters of a change. kind: start, keep, join, leave, swap (nobody stays) or replace (one of two stays)."""

    kind: str
    new: tuple[str, ...]
    left: tuple[str, ...]
    stay: tuple[str, ...]


def change_of(before: Scene | None, after: Scene) -> Change:
    """Who comes, leaves and stays."""
    if before is None:
        return Change("start", after.characters, (), ())
    old, now = before.characters, after.characters
    new = tuple(name for name in now if name not in old)
    left = tuple(name for name in old if name not in now)
    stay = tuple(name for name in now if name in old)
    if not stay:
        kind = "swap"
    elif new and left:
        kind = "replace"
    else:
        kind = "join" if new else "leave" if left else "keep"
    return Change(kind, new, left, stay)


def shows_the_same(before: Scene | None, after: Scene) -> bool:
    """Whether nothing changes but positions."""
    if before is None:
        return False
    content = [
        (set(zip(s.characters, s.outfits, strict=True)), s.motion, s.level, s.place, s.night) for s in (before, after)
    ]
    return content[0] == content[1]


def default_place(before: Scene | None) -> str:
    """The place of a turn that does not name one."""
    return before.place if before else DEFAULT_PLACE


def default_night(before: Scene | None) -> bool:
    """The hour of a turn that does not name one."""
    return before.night if before else DEFAULT_NIGHT


def default_outfit(name: str, before: Scene | None, worn: Mapping[str, str]) -> str:
    """The outfit of a character if the turn does not name one: its last in the game."""
    if before is not None and name in before.characters:
        return before.outfits[before.characters.index(name)]
    return worn.get(name, DEFAULT_OUTFIT)


def default_level(before: Scene | None, names_motion: bool) -> int:
    """The level of a turn that does not name one: 3 for a named motion, else as before."""
    return DEFAULT_LEVEL if names_motion or before is None else before.level


def spot_to_say(before: Scene | None, after: Scene) -> str:
    """The named position that the text must mention, or "" if the scene is where it would be without one."""
    if after.spot == follow(before, after).spot:
        return ""
    return next((name for name in POSITIONS if follow(before, after, name).spot == after.spot), "")
