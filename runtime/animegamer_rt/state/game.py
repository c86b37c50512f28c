"""What a player says and what a game knows: instructions, game states, character states, and the rules of the game.

Knows nothing of models, bundles or files. Source of the numbers: MODEL.md sections 2 and 3.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from animegamer_rt.bundle.config import check_choice
from animegamer_rt.errors import ConfigError, InstructionError

from .story_tags import is_story, story_to_caption

MAX_INSTRUCTION_CHARACTERS = 500
"""Longest instruction: a caption has about 80 characters; 500 keeps five turns inside the full model's window."""

STRENGTHS = tuple(range(-5, 6))
"""The eleven values that a state read-out can name, `<Strength_-5>` .. `<Strength_5>`."""

_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, ready for the tokenizer: NFC, single spaces, no control characters, 1..500 characters.

    Build it with `Instruction.parse`; the constructor does not check.
    """

    text: str

    @classmethod
    def parse(cls, raw: str) -> Instruction:
        """Accepts free text, the caption form (`Character: ..; Motion: ..; Background: ..`), or the story form.

        Tabs and line breaks count as spaces. Raises InstructionError when empty, too long, or not plain text.
        """
        if len(raw) > 20 * MAX_INSTRUCTION_CHARACTERS:
            raise _too_long(len(raw))
        text = " ".join(unicodedata.normalize("NFC", raw).split())
        for position, character in enumerate(text):
            if is_control(character):
                raise InstructionError(
                    "the instruction holds a control character",
                    found=f"U+{ord(character):04X} at character {position + 1}",
                    expected="plain text",
                    do="remove it and send the instruction again",
                )
        if is_story(text):
            text = story_to_caption(text)
        if not any(unicodedata.category(character)[0] in "LNS" for character in text):
            raise InstructionError(
                "the instruction is empty",
                expected="words, for example 'Character: Mirel; Motion: gently wave; Background: day city.'",
            )
        if len(text) > MAX_INSTRUCTION_CHARACTERS:
            raise _too_long(len(text))
        return cls(text)


@dataclass(frozen=True, slots=True)
class GameState:
    """What the predictor says of one turn: four strengths in -5..5, named, never by position."""

    motion_level: int
    social: int
    entertainment: int
    stamina: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) not in STRENGTHS:
                raise ConfigError("a strength is out of range", where=name, found=getattr(self, name), expected="-5..5")


@dataclass(frozen=True, slots=True)
class CharacterState:
    """The character's three running values, 0..100, all 50 at the start of a game."""

    stamina: int = 50
    social: int = 50
    entertainment: int = 50

    def after(self, game_state: GameState) -> CharacterState:
        """The values after a turn: each moves by five times its strength, kept within 0..100."""
        return CharacterState(
            stamina=_clamp(self.stamina + 5 * game_state.stamina),
            social=_clamp(self.social + 5 * game_state.social),
            entertainment=_clamp(self.entertainment + 5 * game_state.entertainment),
        )

    def shown(self, game_state: GameState) -> CharacterState:
        """The values to show after that turn: entertainment 0 (or social 0) shows that value 5 lower.

        Only what is shown: the running values stay, so the drop does not add up over quiet turns.
        """
        return CharacterState(
            stamina=self.stamina,
            social=_clamp(self.social - (5 if game_state.social == 0 else 0)),
            entertainment=_clamp(self.entertainment - (5 if game_state.entertainment == 0 else 0)),
        )


MOTION_TABLES: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "paper": MappingProxyType({1: 0.5, 2: 2.5, 3: 10.0, 4: 15.0}),
        "demo": MappingProxyType({1: 0.5, 2: 1.0, 3: 5.0, 4: 20.0}),
    }
)
"""Motion level -> motion scope (mean optical flow); `paper` is the decoder script's, `demo` the demo application's."""

OTHER_MOTION_SCOPE = 40.0
"""The motion scope of every level that a table does not name: 5, and the levels below 1."""

MOTION_SOURCES = ("motion_level", "social")
"""Which strength the table is read with. Quirk: the reference's demo reads it with `social`."""


def motion_scope(game_state: GameState, table: str = "paper", source: str = "motion_level") -> float:
    """The motion scope that the denoiser is given for this turn. Raises ConfigError for an unknown table or source."""
    scopes = MOTION_TABLES[check_choice(table, tuple(MOTION_TABLES), "motion_table")]
    level = getattr(game_state, check_choice(source, MOTION_SOURCES, "motion_source"))
    return scopes.get(level, OTHER_MOTION_SCOPE)


def is_control(character: str) -> bool:
    """Whether no text may hold this character; spaces and line breaks are none of these."""
    category = unicodedata.category(character)
    return (category in ("Cc", "Cs") and not character.isspace()) or character in _BIDI_CONTROLS


def _clamp(value: int) -> int:
    return max(0, min(100, value))


def _too_long(length: int) -> InstructionError:
    return InstructionError(
        "the instruction is too long",
        found=f"{length} characters",
        expected=f"at most {MAX_INSTRUCTION_CHARACTERS}",
        do="say one thing that happens in this turn",
    )
