"""A game so far, and what a sentence of a class asks for."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

from animegamer_pocket.world.scene import CHARACTERS, DEFAULT_LEVEL, Scene

from .filling import Filling

HOURS = ("day", "night")


@dataclasses.dataclass(frozen=True, slots=True)
class Story:
    """The game so far. earlier: the scene before `before`. worn: last outfits of the absent."""

    rng: random.Random
    before: Scene | None
    earlier: Scene | None
    worn: Mapping[str, str]

    @property
    def shown(self) -> tuple[str, ...]:
        """The characters of the last scene."""
        return self.before.characters if self.before else ()

    def is_at(self, when: str) -> bool:
        """Whether it is the time for a class: any, first (turn), later, alone or pair (of those shown)."""
        return when in ("any", "later" if self.before else "first", ("", "alone", "pair")[len(self.shown)])

    @property
    def clothes(self) -> dict[str, str]:
        """What those shown wear, in their order."""
        return dict(zip(self.shown, self.before.outfits, strict=True)) if self.before else {}

    @property
    def level(self) -> int:
        """The last scene's."""
        return self.before.level if self.before else DEFAULT_LEVEL

    @property
    def absent(self) -> list[str]:
        """The others, in random order."""
        return self.rng.sample([name for name in CHARACTERS if name not in self.shown], 5 - len(self.shown))

    @property
    def hour(self) -> str:
        """day or night."""
        return HOURS[self.before.night] if self.before else "day"

    @property
    def place(self) -> str:
        """Where the last scene is; the meadow if there is none."""
        return self.before.place if self.before else "meadow"

    @property
    def motion(self) -> str:
        """The last scene's."""
        return self.before.motion if self.before else "stand"


@dataclasses.dataclass(slots=True)
class Asked:
    """What a sentence of a class asks for; what is None stays. `people` in the order in which they are named."""

    fill: Filling
    people: tuple[str, ...] | None = None
    motion: str | None = None
    place: str | None = None
    hour: str | None = None
    clothes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    level: int | None = None
    back: Scene | None = None
    """The scene that returns whole."""
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Labels that nothing determines."""


Class = Callable[[Story, str], "Asked | None"]
"""A game and a template -> what its sentence asks for; None if it does not fit the game."""
Classes = Mapping[str, tuple[float, str, Class]]
"""Class -> how often it is drawn, when (see `Story.is_at`), and its function."""


def two(rng: random.Random, values: Sequence[str]) -> tuple[str, str]:
    """Two different ones."""
    first, second = rng.sample(list(values), 2)
    return first, second


def actor(story: Story) -> tuple[str, tuple[str, ...]]:
    """Somebody who is shown, or anybody in a first turn; and who is shown then."""
    if story.before is None:
        one = story.rng.choice(CHARACTERS)
        return one, (one,)
    return story.rng.choice(story.shown), story.shown
