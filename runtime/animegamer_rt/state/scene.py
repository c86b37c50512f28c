"""What a turn shows, as the instruction reader understood it: the next instruction changes this scene.

Knows words only; which words there are is a bundle's business. A bundle without a reader has no scenes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from animegamer_rt.errors import SessionError

HOURS = ("day", "night")
LEVELS = (1, 2, 3, 4, 5)
"""Levels of motion, weakest first."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One turn's scene, in the words of the bundle's manifest (section `reader`).

    people: who is shown, one or two names, the first named first. clothes: what each person of the bundle wears, also
    those who are not shown: they come back in it. level: 1..5. hour: one of HOURS. caption: the scene in the caption
    form that the predictor knows; the prompts of later turns have it in place of the instruction. left: who left last
    and is not back, so that "she comes back" says who.
    """

    people: tuple[str, ...]
    clothes: Mapping[str, str]
    motion: str
    level: int
    place: str
    hour: str
    position: str
    caption: str
    left: tuple[str, ...] = ()

    def shows_the_same(self, other: Scene) -> bool:
        """Whether the same people wear the same and do the same at the same place and hour; positions may differ."""

        def shown(scene: Scene) -> tuple[object, ...]:
            worn = {name: scene.clothes[name] for name in scene.people}
            return worn, scene.motion, scene.level, scene.place, scene.hour

        return shown(self) == shown(other)

    def to_fields(self) -> dict[str, Any]:
        """What the scene shows, as clients are sent it: clothes only of the people in it."""
        return {
            "people": [{"name": name, "clothes": self.clothes[name]} for name in self.people],
            "motion": self.motion,
            "level": self.level,
            "place": self.place,
            "hour": self.hour,
            "position": self.position,
            "caption": self.caption,
        }

    def to_json(self) -> str:
        """The scene as it is stored: compact JSON, without `left` where nobody left."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.left:
            del values["left"]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Scene:
        """The inverse of `to_json`. Raises SessionError for text that is no scene."""
        try:
            values = json.loads(text)
            people, left = tuple(values["people"]), tuple(values.get("left", ()))
            return cls(**{**values, "people": people, "left": left})
        except (ValueError, TypeError, KeyError) as error:
            raise SessionError("a turn's scene cannot be read", found=repr(text[:80]), expected="a scene") from error


def left_last(people: Sequence[str], left: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """Who left last once `now` are shown, after `people` were and `left` had left before them."""
    gone = tuple(name for name in people if name not in now)
    return gone or tuple(name for name in left if name not in now)
