"""Normalises instructions, and refuses those with blocked words, or with words outside the operator's allow list.

Blocked words are found as whole words, in any case and width of letters, despite invisible characters or accents,
look-alike letters of other scripts, digits and signs for letters, or spaced-out letters (`n a k e d`, `n.a.k.e.d`).
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import ConfigError, ProtocolError
from animegamer_rt.state.instruction import Instruction, is_control

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point, which Python's tables lack, and the empty Braille pattern."""
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0432\u0435\u0455\u0456\u0458\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u044c\u04bb\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b7\u03b9\u03ba\u03bd\u03bf\u03c1\u03c3\u03c4\u03c5\u03c7\u03c9"
    "\u0131\u0237\u0251\u0261\u026a\u0280\u0274\u028f\u1d00\u1d04\u1d05\u1d07\u1d0a\u1d0b\u1d0d\u1d0f\u1d18\u1d1b\u1d1c\u1d20\u1d21\u1d22"
    "\u00f8\u0111\u0127\u0142\u0180\u0268\u0581\u0585\u0578\u057d",
    "abesijkmhopctyxbhdqwabenikvoptuuxwijagirnyacdejkmoptuvwzodhlbigonu",
)
"""Letters that look like Latin ones -> these: Cyrillic, Greek, Armenian, phonetic, and Latin ones with a stroke."""


_SIGNS = str.maketrans("0134578@$!|", "oieastbasii")
"""Digits and signs that stand for letters -> these."""
_SET_APART = re.compile(r"(?<![^\W_])[^\W_](?:[\s.,_*~'+-]+[^\W_](?![^\W_])){2,}")
"""Three or more single letters separated by blanks, dots or dashes."""
_BETWEEN = re.compile(r"[\W_]+")
_WORD = re.compile(r"[^\W_]+")


MAX_LIST_BYTES = 8 * 2**20


class InstructionFilter:
    """Checks instructions. Both lists are files with one word or phrase per line; lines starting with # are skipped.

    block_list: instructions containing an entry are refused. allow_list: those containing any other word are refused.
    """

    def __init__(self, block_list: Path | None = None, allow_list: Path | None = None) -> None:
        phrases = [] if block_list is None else _read(block_list, "block_list")
        self._blocked = _pattern(phrases) if phrases else None
        allowed = None if allow_list is None else _read(allow_list, "allow_list")
        self._allowed = None if allowed is None else frozenset(_WORD.findall(_plain(" ".join(allowed))))

    def read(self, raw: str) -> Instruction:
        """The instruction as it will be played: NFC, no control characters, single spaces.

        Raises InstructionError for invalid text, ProtocolError `blocked` for text the lists forbid.
        """
        instruction = Instruction.parse("".join(letter for letter in raw if not is_control(letter)))
        plain = _plain(instruction.text)
        blocked = self._blocked is not None and any(map(self._blocked.search, _readings(plain)))
        if blocked or (self._allowed is not None and not self._allowed.issuperset(_WORD.findall(plain))):
            raise ProtocolError("this server does not allow that", code="blocked", do="use other words")
        return instruction


def _readings(plain: str) -> list[str]:
    """The possible readings of a text: unchanged, with signs as letters, with spaced-out letters joined."""
    texts = [plain, plain.translate(_SIGNS)]
    return texts + [_SET_APART.sub(lambda found: _BETWEEN.sub("", found[0]), text) for text in texts]


def _read(path: Path, setting: str) -> list[str]:
    try:
        lines = read_bounded(path, MAX_LIST_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = f"give {setting} a UTF-8 text file with one word or phrase per line"
        raise ConfigError(f"the {setting.replace('_', '-')} cannot be read", where=path, found=found, do=do) from error
    return [line.strip() for line in lines if _plain(line).strip() and not line.lstrip().startswith("#")]


def _pattern(phrases: list[str]) -> re.Pattern[str]:
    words = [r"\s+".join(re.escape(word) for word in _plain(phrase).split()) for phrase in phrases]
    # Not \b: a phrase may begin or end with a non-letter such as a heart or a sign.
    return re.compile(r"(?<![^\W_])(?:" + "|".join(words) + r")(?![^\W_])")


def _plain(text: str) -> str:
    """The text as it is compared: lower case, Latin letters, no invisible characters, no accents."""
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    seen = "".join(letter for letter in parts if unicodedata.category(letter) not in ("Cf", "Mn", "Me"))
    return _INVISIBLE.sub("", seen).translate(_LOOK_ALIKE)
