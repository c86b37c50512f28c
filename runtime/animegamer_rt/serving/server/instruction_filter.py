"""Normalises instructions, and refuses those with blocked words, or with words outside the operator's allow list.

Blocked words are found as whole words, in any case and width of letters, despite invisible characters or accents,
look-alike letters of other scripts, squares and flags, digits and signs for letters, repeated letters, signs inside
or behind a word, or spaced-out letters (`n4k3d!`, `na-ked`, `nakeeed`, `n a k e d`).
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from pathlib import Path

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import ConfigError, ProtocolError
from animegamer_rt.state.game import Instruction, is_control

_INVISIBLE = re.compile(
    "[\u00ad\u034f\u0640\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point, which Python's tables lack, empty Braille and Arabic's tatweel."""
_TABLE = Path(__file__).with_name("look_alikes.txt")
_EITHER = "\u00ef"
"""Stands for a letter that may be an i or an l, as a capital I: no text holds it once accents are taken off."""
_SIGNS = str.maketrans(
    "0134578@$!|\u00a1+\u20ac^\u00a2\u00a9\u00a3\u00a7", f"O{_EITHER.upper()}EASTBAS{3 * _EITHER.upper()}TEACCLS"
)
"""Digits and signs that stand for letters -> these as capitals; letters proper are small by then."""
_SIGN_LETTERS = f"A-Z{_EITHER.upper()}"
_SHAPES = {"i": (f"i{_EITHER}", "l"), "l": (f"l{_EITHER}",), _EITHER: (f"i{_EITHER}", f"l{_EITHER}")}
"""What a letter of a blocked word may look like, where that is more than itself. Repeats are of one kind, as in `tiiit`
but not in `tilt`."""
_SET_APART = re.compile(r"(?<!\w)\w(?:\W+\w(?!\w)){2,}")
"""Three or more single letters separated by blanks or signs."""
_BETWEEN = re.compile(r"\W+")
_INSIDE = r"[^\w\s'\u2019]*"
"""Signs inside a word that are overlooked. Not apostrophes, or `he'll` would be another word."""
_LONG_RUN = re.compile(r"(\w)\1{3,}")
"""A letter repeated more often than `_shape` allows for. A bound for each letter keeps a search fast."""
_WORD = re.compile(r"\w+")
MAX_LIST_BYTES = 8 * 2**20


class InstructionFilter:
    """Checks instructions. Both lists are files with one word or phrase per line; lines starting with # are skipped.

    block_list: instructions containing an entry are refused. allow_list: those containing any other word are refused.
    """

    def __init__(self, block_list: Path | None = None, allow_list: Path | None = None) -> None:
        phrases = [] if block_list is None else _read(block_list, "block_list")
        self._blocked = _pattern(phrases) if phrases else None
        allowed = None if allow_list is None else _read(allow_list, "allow_list")
        self._allowed = None if allowed is None else _words(" ".join(allowed))

    def read(self, raw: str) -> Instruction:
        """The instruction as it will be played: NFC, no control characters, single spaces.

        Raises InstructionError for invalid text, ProtocolError `blocked` for text the lists forbid.
        """
        instruction = Instruction.parse("".join(letter for letter in raw if not is_control(letter)))
        text = instruction.text
        blocked = self._blocked is not None and any(map(self._blocked.search, _readings(_plain(text))))
        if blocked or (self._allowed is not None and not self._allowed >= _words(text)):
            raise ProtocolError("this server does not allow that", code="blocked", do="use other words")
        return instruction


def _readings(plain: str) -> list[str]:
    """The possible readings of a text: unchanged, with signs as letters, each also with spaced-out letters joined."""
    texts = [plain, plain.translate(_SIGNS)]
    return texts + [_SET_APART.sub(lambda found: _BETWEEN.sub("", found[0]), text) for text in texts]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_plain(text).replace(_EITHER, "i")))


def _read(path: Path, setting: str) -> list[str]:
    try:
        lines = read_bounded(path, MAX_LIST_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = f"give {setting} a UTF-8 text file with one word or phrase per line"
        raise ConfigError(f"the {setting.replace('_', '-')} cannot be read", where=path, found=found, do=do) from error
    return [line.strip() for line in lines if _plain(line).strip() and not line.lstrip().startswith("#")]


def _pattern(phrases: list[str]) -> re.Pattern[str]:
    """Finds phrases between non-letters, or beside letters that are written as signs (`n4k3d!`)."""
    plain = (_plain(phrase).translate(_SIGNS).lower().split() for phrase in phrases)
    shapes: dict[str, list[str]] = {}
    for words in plain:
        shapes.setdefault(words[0][0], []).append(r"\W*".join(map(_shape, words)))
    # By first letter: nobody waits while a text of many words is compared with each of thousands.
    found = (f"(?=[{''.join(_kinds(letter))}])(?:{'|'.join(found)})" for letter, found in shapes.items())
    return re.compile(f"(?<![^\\W{_SIGN_LETTERS}])(?:{'|'.join(found)})(?=[{_SIGN_LETTERS}]*(?!\\w))")


def _shape(word: str) -> str:
    """A pattern for a word whose letters may be repeated, be written as signs, or have signs between them."""
    parts = []
    for letter, run in itertools.groupby(word):
        once, repeated = ("|".join(f"[{kind}]{times}" for kind in _kinds(letter)) for times in ("", "{1,3}"))
        if "|" in once:
            once, repeated = f"(?:{once})", f"(?:{repeated})"
        parts.append(f"{once}{_INSIDE}" * (len(list(run)) - 1) + repeated)
    return _INSIDE.join(parts)


def _kinds(letter: str) -> list[str]:
    """What a letter may look like: the contents of character sets."""
    return [re.escape(kind + kind.upper()) for kind in _SHAPES.get(letter, (letter,))]


def _plain(text: str) -> str:
    """The text as it is compared: small Latin letters, no invisible characters, no accents."""
    parts = unicodedata.normalize("NFKD", text)
    seen = "".join(letter for letter in parts if unicodedata.category(letter) not in ("Cf", "Mn", "Me", "Mc"))
    plain = _INVISIBLE.sub("", seen).translate(_look_alikes()).casefold()
    return _LONG_RUN.sub(r"\1\1\1", plain)


@functools.cache
def _look_alikes() -> dict[int, str]:
    """Characters -> the small Latin letters they look like, capitals and small letters apart."""
    table = {ord("I"): _EITHER, ord("_"): "-"}  # regular expressions take an underscore for a letter
    for line in _TABLE.read_text("ascii").splitlines():
        letters, *codes = line.split()
        if letters != "#":
            table |= dict.fromkeys((int(code, 16) for code in codes), _EITHER if letters == "il" else letters)
    return table
