"""The game's state and rules: strengths, a character's values, and the motion scope that a state asks for.

Knows nothing of text, models, bundles or files. Source of the numbers: MODEL.md sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from animegamer_rt.errors import ConfigError

STRENGTH_VALUES = tuple(range(-5, 6))
"""The eleven values of a strength, `<Strength_-5>` .. `<Strength_5>`."""


@dataclass(frozen=True, slots=True)
class GameState:
    """The predicted state of one turn: four strengths, each -5..5."""

    motion_level: int
    social: int
    entertainment: int
    stamina: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) not in STRENGTH_VALUES:
                raise ConfigError("a strength is out of range", where=name, found=getattr(self, name), expected="-5..5")


STRENGTHS = tuple(field.name for field in fields(GameState))
"""The strengths' names, in the order of the prompt. Tags, messages, columns and files derive from this tuple."""


@dataclass(frozen=True, slots=True)
class CharacterState:
    """The character's three running values, 0..100, all 50 at the start of a game; each named after its strength."""

    stamina: int = 50
    social: int = 50
    entertainment: int = 50

    def after(self, game_state: GameState) -> CharacterState:
        """The values after a turn: each moves by five times its strength, kept within 0..100."""
        return CharacterState(**{name: _clamp(getattr(self, name) + 5 * getattr(game_state, name)) for name in VALUES})

    def shown(self, game_state: GameState) -> CharacterState:
        """The values to display after that turn: a strength of 0 for entertainment (or social) shows its value 5 lower.

        The running values stay as they are, so the drop does not add up over quiet turns.
        """
        return CharacterState(
            stamina=self.stamina,
            social=_clamp(self.social - (5 if game_state.social == 0 else 0)),
            entertainment=_clamp(self.entertainment - (5 if game_state.entertainment == 0 else 0)),
        )


VALUES = tuple(field.name for field in fields(CharacterState))
"""The names of the character's values; each is also a strength."""


MOTION_TABLES: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "paper": MappingProxyType({1: 0.5, 2: 2.5, 3: 10.0, 4: 15.0}),
        "demo": MappingProxyType({1: 0.5, 2: 1.0, 3: 5.0, 4: 20.0}),
    }
)
"""Motion level -> motion scope (mean optical flow); `paper` is the decoder script's, `demo` the demo application's."""

OTHER_MOTION_SCOPE = 40.0
"""The motion scope of levels that no table lists: 5, and those below 1."""

MOTION_SOURCES = ("motion_level", "social")
"""The strengths that can index a motion table. Quirk: the reference's demo uses `social`."""


def motion_scope(game_state: GameState, table: str = "paper", source: str = "motion_level") -> float:
    """The motion scope that the denoiser is given for this turn.

    `table` is a key of MOTION_TABLES, `source` one of MOTION_SOURCES; a bundle's manifest has checked both.
    """
    return MOTION_TABLES[table].get(getattr(game_state, source), OTHER_MOTION_SCOPE)


def _clamp(value: int) -> int:
    return max(0, min(100, value))
