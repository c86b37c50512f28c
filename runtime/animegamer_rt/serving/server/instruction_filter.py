"""Normalises instructions, and refuses those with a word or phrase of the operator's block list.

Knows text only. Blocked words are found as whole words, in any case and any width of letters, even with invisible
characters between the letters.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from animegamer_rt.errors import ConfigError, ProtocolError
from animegamer_rt.state.instruction import Instruction, is_control

_GRAPHEME_JOINER = "\u034f"
"""Invisible, like the characters of category Cf; Unicode counts it among the accents."""


class InstructionFilter:
    """Reads instructions. block_list: a file, a word or phrase a line; lines that begin with # are skipped."""

    def __init__(self, block_list: Path | None = None) -> None:
        phrases = [] if block_list is None else _read(block_list)
        self._blocked = _pattern(phrases) if phrases else None

    def read(self, raw: str) -> Instruction:
        """The instruction as it will be played: NFC, no control characters, single spaces.

        Raises InstructionError for what cannot be played, ProtocolError `blocked` for what may not.
        """
        instruction = Instruction.parse("".join(letter for letter in raw if not is_control(letter)))
        if self._blocked is not None and self._blocked.search(_plain(instruction.text)):
            raise ProtocolError("this server does not play that", code="blocked", do="say it in other words")
        return instruction


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = "give --block-list a file of UTF-8 text, a word or phrase a line"
        raise ConfigError("the block-list cannot be read", where=path, found=found, do=do) from error
    return [line.strip() for line in lines if _plain(line).strip() and not line.lstrip().startswith("#")]


def _pattern(phrases: list[str]) -> re.Pattern[str]:
    words = [r"\s+".join(re.escape(word) for word in _plain(phrase).split()) for phrase in phrases]
    # Not \b: a phrase may begin or end with what `re` does not take for a letter, such as a heart or a sign.
    return re.compile(r"(?<![^\W_])(?:" + "|".join(words) + r")(?![^\W_])")


def _plain(text: str) -> str:
    """The text in the form that is compared: lower case, without invisible characters."""
    seen = "".join(letter for letter in text if unicodedata.category(letter) != "Cf" and letter != _GRAPHEME_JOINER)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
