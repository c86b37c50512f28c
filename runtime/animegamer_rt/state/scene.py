"""What a turn shows, as the instruction reader understood it: the next instruction changes this scene.

Knows words only; which words there are is a bundle's business. A bundle without a reader has no scenes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from animegamer_rt.errors import SessionError

HOURS = ("day", "night")
LEVELS = (1, 2, 3, 4, 5)
"""Levels of motion, weakest first."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One turn's scene, in the words of the bundle's manifest (section `reader`).

    people: who is shown, one or two names, the first named first. clothes: what each person of the bundle wears, also
    those who are not shown: they come back in it. level: 1..5. hour: one of HOURS. caption: the scene in the caption
    form that the predictor knows; the prompts of later turns have it in place of the instruction.
    """

    people: tuple[str, ...]
    clothes: Mapping[str, str]
    motion: str
    level: int
    place: str
    hour: str
    position: str
    caption: str

    def to_json(self) -> str:
        """The scene as it is stored: compact JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Scene:
        """The inverse of `to_json`. Raises SessionError for text that is no scene."""
        try:
            fields = json.loads(text)
            return cls(**{**fields, "people": tuple(fields["people"])})
        except (ValueError, TypeError, KeyError) as error:
            raise SessionError("a turn's scene cannot be read", found=repr(text[:80]), expected="a scene") from error
