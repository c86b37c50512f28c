"""What a text must say about a change, plus random optional details."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

from animegamer_pocket.world.scene import Scene

from .change import change_of, default_level, default_night, default_outfit, default_place, spot_to_say

FIRST_MOTION = "stand"
"""The motion of a first turn that does not name one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What the text must say. outfits: the characters whose clothes it names, with the clothes.

    back: the newcomers are those who left last, so "she is back" identifies them.
    """

    kind: str
    new: tuple[str, ...]
    left: tuple[str, ...]
    stay: tuple[str, ...]
    names_motion: bool
    said: frozenset[str]
    outfits: Mapping[str, str]
    spot: str
    back: bool = False


def plan_of(
    rng: random.Random, before: Scene | None, after: Scene, worn: Mapping[str, str], left: Sequence[str] = ()
) -> Plan:
    """What a text about the change must say, plus random optional details."""
    change = change_of(before, after)
    said = set()
    names_motion = before is None or before.motion != after.motion or rng.random() < 0.35
    if after.place != default_place(before) or rng.random() < (0.25 if before is None else 0.06):
        said.add("place")
    if after.night != default_night(before) or rng.random() < (0.15 if before is None else 0.04):
        said.add("night")
    if before is None and after.level == 3 and after.motion == FIRST_MOTION and said and rng.random() < 0.3:
        names_motion = False
    if after.level != default_level(before, names_motion) or rng.random() < 0.08:
        said.add("level")
    outfits = {
        name: outfit
        for name, outfit in zip(after.characters, after.outfits, strict=True)
        if outfit != default_outfit(name, before, worn) or rng.random() < 0.03
    }
    if outfits:
        said.add("outfits")
    spot = spot_to_say(before, after)
    if spot:
        said.add("position")
    back = change.kind in ("join", "swap") and set(change.new) == set(left)
    return Plan(change.kind, change.new, change.left, change.stay, names_motion, frozenset(said), outfits, spot, back)
