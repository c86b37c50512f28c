"""The words of an instruction, and the numbers that stand for them in the instruction reader.

A word is the sum of its pieces: the word itself, its runs of two to four letters, and its pairs of letters with one
between. A misspelt word shares most pieces with the right one, and no table of words is needed: a piece's number is a
hash. Training and playing use this same code. It knows nothing of the network.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import zlib
from collections.abc import Collection, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

BUCKETS = 24576
"""How many numbers a piece may have; 0 stands for no piece."""

GRAMS = 48
"""The most pieces of a word. Further ones are left out; English words of up to 11 letters have no more."""

MAX_WORDS = 96
"""The most words of an instruction. Later ones are not read."""

_SPELLINGS = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201b": "'", "`": "'", "\u00b4": "'", "_": " "})
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+|[^\sa-z0-9]")
_DROPPED = frozenset(("Mn", "Me", "Cf", "Cc", "Cs", "Sk"))
"""Unicode categories that are left out: accents, joiners, controls, skin tones."""

_SPELT_OUT = MappingProxyType({"s": "is", "re": "are", "ll": "will", "ve": "have", "d": "would"})
_LONG_RUN = re.compile(r"([a-z])\1{2,}")
_PHRASES = ((re.compile(r"\bin place of\b"), "instead of"), (re.compile(r"\bwants in\b(?! \w)"), "joins"))
"""Phrases that the part's texts do not have, and how those say it."""
_CORRECTED = re.compile(
    r"\b((?:the )?[a-z]+)\b((?: \S+)*?)"
    r"(?: (?:[^a-z ]|no|wait|sorry|oops|scratch that|i mean))+ not \1 (?:, )?(?:but )?((?:the )?[a-z]+)"
)
"""Somebody or something that is taken back and named anew."""


def split_words(text: str) -> list[str]:
    """The words, numbers, signs and emoji of a text in lower case, without accents; at most `MAX_WORDS`."""
    text = unicodedata.normalize("NFKD", text.translate(_SPELLINGS)).casefold()
    kept = "".join(char for char in text if unicodedata.category(char) not in _DROPPED or char in "\n\t")
    return _WORD.findall(_LONG_RUN.sub(r"\1\1", kept))[:MAX_WORDS]


def is_word(word: str) -> bool:
    """Whether it is a Latin word, an emoji or another sign: no number, no dot, no letter of another script."""
    return (word.isascii() and word[0].isalpha()) or unicodedata.category(word[0])[0] == "S"


def is_emoji(word: str) -> bool:
    """Whether it is an emoji, or a sign like one."""
    return unicodedata.category(word[0]) == "So"


def with_corrections(words: Sequence[str]) -> list[str]:
    """The words as the speaker meant them: "Tofi waves, no wait, not Tofi, Bixo" is "Bixo waves"."""
    text = _CORRECTED.sub(r"\3\2", " ".join(words))
    for phrase, plain in _PHRASES:
        text = phrase.sub(plain, text)
    return text.split()


def with_contractions_spelt_out(words: Sequence[str], known: Collection[str]) -> list[str]:
    """The words; a contraction that is not known becomes two words if its first one is known: she's, she is."""
    spelt: list[str] = []
    for word in words:
        first, _, rest = word.partition("'")
        spelt += [first, _SPELT_OUT[rest]] if word not in known and first in known and rest in _SPELT_OUT else [word]
    return spelt


def with_letters_in_order(words: Sequence[str], known: Collection[str]) -> list[str]:
    """The words; two letters next to each other are exchanged where exactly one known word comes of it: foerst, forest.

    Known words stay, and so do those of fewer than three letters.
    """
    return [word if word in known else _in_order(word, known) for word in words]


def _in_order(word: str, known: Collection[str]) -> str:
    if len(word) < 3:
        return word
    pairs = range(len(word) - 1)
    exchanged = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in pairs}
    found = [other for other in exchanged if other in known]
    return found[0] if len(found) == 1 else word


def word_features(words: Sequence[str]) -> npt.NDArray[np.int64]:
    """The numbers of each word's pieces: int64 [words, GRAMS], 0 where a word has fewer pieces."""
    if not words:
        return np.zeros((0, GRAMS), np.int64)
    return np.stack([_features(word) for word in words])


@functools.lru_cache(maxsize=65536)
def _features(word: str) -> npt.NDArray[np.int64]:
    marked = f"<{word}>"
    pieces = [f"w{word}"]
    pieces += [f"s{marked[i]}{marked[i + 2]}" for i in range(len(marked) - 2)]
    for size in (2, 3, 4):
        pieces += [marked[i : i + size] for i in range(len(marked) - size + 1)]
    row = np.zeros(GRAMS, np.int64)
    for index, piece in enumerate(pieces[:GRAMS]):
        row[index] = 1 + zlib.crc32(piece.encode()) % (BUCKETS - 1)
    row.flags.writeable = False
    return row
