"""What a player types: one instruction, checked and normalized before it reaches the tokenizer.

Knows text only; nothing of models, bundles or files. The paper's story form, `<S>..</S><MD>..</MD><EV>..</EV>
<ML>..</ML><MA>..</MA>`, becomes the caption form. Our reading of its tags (the networks are trained on captions, never
on tags): S subject (repeat it for two characters), MA motion adverb, MD motion description, EV environment, ML motion
level. SC, ET and ST label the state. The predictor predicts them, so they are accepted and left out of the caption.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from animegamer_rt.errors import InstructionError
from animegamer_rt.untrusted import short, whole_number

MAX_INSTRUCTION_CHARACTERS = 500
"""Longest instruction: a caption has about 80 characters; with 500, five turns fit the full model's window."""

CAPTION_TAGS = ("S", "MD", "EV", "ML", "MA")
LABEL_TAGS = ("SC", "ET", "ST")

LEVEL_ADVERBS = {1: "barely", 2: "gently", 3: "smoothly", 4: "quickly", 5: "wildly"}
"""The adverb for a motion level given as a number."""

_ANY_TAG = re.compile(r"</?\s*([A-Za-z_]+)\s*>")
_ELEMENT = re.compile(r"\s*[,;.]?\s*<([A-Za-z_]+)>([^<>]*)</\1>")
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


def is_story(text: str) -> bool:
    """Whether the text is in the story form."""
    return _ANY_TAG.match(text.lstrip()) is not None


def story_to_caption(text: str) -> str:
    """The caption `Character: S; Motion: MA MD; Background: EV.`, with the fields that the story has.

    Raises InstructionError for an unknown or unclosed tag, text between tags, or a missing motion.
    """
    values: dict[str, list[str]] = {}
    position = 0
    while match := _ELEMENT.match(text, position):
        tag = match.group(1)
        if tag not in CAPTION_TAGS + LABEL_TAGS:
            raise _unknown_tag(tag)
        values.setdefault(tag, []).append(match.group(2).strip())
        position = match.end()
    if rest := text[position:].strip(" .,;"):
        stray = _ANY_TAG.match(rest)
        if stray and stray.group(1) not in CAPTION_TAGS + LABEL_TAGS:
            raise _unknown_tag(stray.group(1))
        raise InstructionError(
            "the story form is malformed",
            where=f"character {position + 1}",
            found=repr(rest[:30]),
            expected="<TAG>words</TAG> one after another, each closed",
        )
    for tag in ("MD", "EV", "ML", "MA"):
        if len(values.get(tag, ())) > 1:
            raise InstructionError(f"the tag <{tag}> occurs {len(values[tag])} times", expected="once a turn")
    motion = " ".join(part for part in (_adverb(values), *values.get("MD", ())) if part)
    if not motion:
        raise InstructionError("the story form has no motion", expected="<MD>what the character does</MD>")
    subject = " and ".join(name for name in values.get("S", ()) if name)
    fields = (("Character", subject), ("Motion", motion), ("Background", " ".join(values.get("EV", ()))))
    return "; ".join(f"{name}: {value}" for name, value in fields if value) + "."


def _adverb(values: dict[str, list[str]]) -> str:
    adverb = " ".join(values.get("MA", ()))
    level = " ".join(values.get("ML", ()))
    if adverb or not level:
        return adverb
    if any(one.isalpha() for one in level) and not any(one.isnumeric() for one in level):
        return level
    try:
        return LEVEL_ADVERBS[whole_number(level, min(LEVEL_ADVERBS), max(LEVEL_ADVERBS))]
    except ValueError as error:
        found, expected = short(level, 40)[1:-1], "1 to 5, or an adverb"
        raise InstructionError("unknown motion level", found=found, expected=expected) from error


def _unknown_tag(tag: str) -> InstructionError:
    known = " ".join(f"<{name}>" for name in CAPTION_TAGS + LABEL_TAGS)
    return InstructionError("unknown story tag", found=f"<{tag}>", expected=f"one of {known}")
