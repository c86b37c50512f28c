"""What a player types: one instruction, checked and normalized before it reaches the tokenizer.

Knows text only; nothing of models, bundles or files.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from animegamer_rt.errors import InstructionError

from .story_tags import is_story, story_to_caption

MAX_INSTRUCTION_CHARACTERS = 500
"""Longest instruction: a caption has about 80 characters; 500 keeps five turns inside the full model's window."""


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
        if not isinstance(raw, str):
            raise InstructionError("not an instruction", found=type(raw).__name__, expected="text (str)")
        if len(raw) > 20 * MAX_INSTRUCTION_CHARACTERS:
            raise _too_long(len(raw))
        text = " ".join(unicodedata.normalize("NFC", raw).split())
        for position, character in enumerate(text):
            if is_control(character):
                raise InstructionError(
                    "the instruction contains a control character",
                    found=f"U+{ord(character):04X} at character {position + 1}",
                    expected="plain text",
                    do="remove it and send the instruction again",
                )
        if text.startswith("<") and is_story(text):
            text = story_to_caption(text)
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


def _too_long(length: int) -> InstructionError:
    return InstructionError(
        "the instruction is too long",
        found=f"{length} characters",
        expected=f"at most {MAX_INSTRUCTION_CHARACTERS}",
        do="say one thing that happens in this turn",
    )
