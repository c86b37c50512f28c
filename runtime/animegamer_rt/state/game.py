"""What a player types, and what a game knows of its turns: strengths, values, motion scope, scenes, finished turns.

The bundle defines a scene's words. Source of the numbers: MODEL.md sections 2 and 3.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from animegamer_rt.errors import ConfigError, InstructionError, SessionError

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

NEUTRAL = GameState(**dict.fromkeys(STRENGTHS, 0))
"""The strengths of a picture that a game starts from; the reference gives every turn of the history these."""


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
        quiet = [name for name in ("social", "entertainment") if getattr(game_state, name) == 0]
        return replace(self, **{name: _clamp(getattr(self, name) - 5) for name in quiet})


VALUES = tuple(field.name for field in fields(CharacterState))
"""The names of the character's values; each is also a strength."""


MOTION_TABLES: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        "paper": MappingProxyType({1: 0.5, 2: 2.5, 3: 10.0, 4: 15.0}),
        "demo": MappingProxyType({1: 0.5, 2: 1.0, 3: 5.0, 4: 20.0}),
    }
)
"""Motion level -> motion scope (mean optical flow); `paper`: the decoder script's, `demo`: the demo application's."""

OTHER_MOTION_SCOPE = 40.0
"""The motion scope of levels missing in the tables: 5, and those below 1."""

MOTION_SOURCES = ("motion_level", "social")
"""The strengths that can index a motion table. Quirk: the reference's demo uses `social`."""


def motion_scope(game_state: GameState, table: str = "paper", source: str = "motion_level") -> float:
    """The denoiser's motion scope for this turn.

    `table` is a key of MOTION_TABLES, `source` one of MOTION_SOURCES, both checked by the bundle's manifest.
    """
    return MOTION_TABLES[table].get(getattr(game_state, source), OTHER_MOTION_SCOPE)


def _clamp(value: int) -> int:
    return max(0, min(100, value))


HOURS = ("day", "night")
LEVELS = (1, 2, 3, 4, 5)
"""Levels of motion, weakest first."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One turn's scene, in the words of the bundle's manifest (section `reader`).

    people: who is shown, one or two names, the first named first. clothes: what each person of the bundle wears,
    including absent ones, who come back in it. level: 1..5. hour: one of HOURS. caption: the scene in the predictor's
    format, which replaces the instruction in the prompts of later turns. left: who left last and is not back, so that
    "she comes back" is unambiguous.
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
        """The scene as sent to clients: clothes only of the people in it."""
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
        """The scene as stored: compact JSON, without `left` if nobody left."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.left:
            del values["left"]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Scene:
        """The inverse of `to_json`. Raises SessionError for invalid text."""
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


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One finished turn: the instruction's text, the predicted state, and the scene if a reader understood one."""

    text: str
    game_state: GameState
    scene: Scene | None = None

    @property
    def prompt_text(self) -> str:
        """The turn's text in the prompts of later turns: the scene's caption, or the instruction itself."""
        return self.text if self.scene is None else self.scene.caption


MAX_INSTRUCTION_CHARACTERS = 500
"""Longest instruction: a caption has about 80 characters; with 500, five turns fit the full model's window."""
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, ready for the tokenizer: NFC, single spaces, no control characters, 1..500 characters.

    Build it with `Instruction.parse`; the constructor does not check.
    """

    text: str

    @classmethod
    def parse(cls, raw: str) -> Instruction:
        """Accepts free text, or the caption form (`Character: ..; Motion: ..; Background: ..`).

        Tabs and line breaks count as spaces. Raises InstructionError if empty, too long, or not plain text.
        """
        if not isinstance(raw, str):
            raise InstructionError("not an instruction", found=type(raw).__name__, expected="text (str)")
        if len(raw) > 20 * MAX_INSTRUCTION_CHARACTERS:
            raise _too_long(len(raw))
        text = " ".join(unicodedata.normalize("NFC", raw).split())
        for position, character in enumerate(text):
            if is_control(character):
                raise _not_plain(character, position)
        if not any(unicodedata.category(character)[0] in "LNS" for character in text):
            raise InstructionError(
                "the instruction is empty",
                expected="words, for example 'Mirel waves gently in the city.'",
            )
        if len(text) > MAX_INSTRUCTION_CHARACTERS:
            raise _too_long(len(text))
        return cls(text)


def is_control(character: str) -> bool:
    """Whether an instruction must not contain this character. Spaces, tabs and line breaks are allowed."""
    category = unicodedata.category(character)
    return (category in ("Cc", "Cs") and not character.isspace()) or character in _BIDI_CONTROLS


def _not_plain(character: str, position: int) -> InstructionError:
    what, do = "the instruction contains a control character", "remove it and send the instruction again"
    found = f"U+{ord(character):04X} at character {position + 1}"
    if character in _BIDI_CONTROLS:
        what, do = "the instruction contains an invisible mark", "type the words again instead of pasting them"
    elif "\udc80" <= character <= "\udcff":  # how Python keeps a byte that it cannot decode
        what, do = "the instruction is not UTF-8 text", "set the terminal and its locale to UTF-8"
        found = f"byte {ord(character) - 0xDC00:#x} at character {position + 1}"
    return InstructionError(what, found=found, expected="plain text", do=do)


def _too_long(length: int) -> InstructionError:
    return InstructionError(
        "the instruction is too long",
        found=f"{length} characters",
        expected=f"at most {MAX_INSTRUCTION_CHARACTERS}",
        do="describe one thing that happens in this turn",
    )
