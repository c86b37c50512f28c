"""The words of an instruction, and their numbers in the instruction reader.

A word is the sum of its pieces: the word itself, its runs of two to four letters, and its pairs of letters with one
between. A misspelt word shares most pieces with the right one, and no table of words is needed: a piece's number is a
hash. Training and playing share this code.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import zlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

BUCKETS = 24576
"""Number of hash values of pieces; 0 stands for no piece."""

GRAMS = 48
"""Most pieces of a word. Further ones are dropped; words of up to 11 letters have no more."""

MAX_WORDS = 96
"""Most words of an instruction. Later ones are ignored."""

_SPELLINGS = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201b": "'", "`": "'", "\u00b4": "'", "_": " "})
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+|[^\sa-z0-9]")
_DROPPED = frozenset(("Mn", "Me", "Cf", "Cc", "Cs", "Sk"))
"""Unicode categories to drop: accents, joiners, controls, skin tones."""
_LONG_RUN = re.compile(r"([a-z])\1{2,}")


def split_words(text: str) -> list[str]:
    """The words, numbers, signs and emoji of a text in lower case, without accents; at most `MAX_WORDS`."""
    text = unicodedata.normalize("NFKD", text.translate(_SPELLINGS)).casefold()
    kept = "".join(char for char in text if unicodedata.category(char) not in _DROPPED or char in "\n\t")
    return _WORD.findall(_LONG_RUN.sub(r"\1\1", kept))[:MAX_WORDS]


def is_word(word: str) -> bool:
    """Whether it is a Latin word, a letter of another script, an emoji or another sign: not a number or a dot."""
    return word[0].isalpha() or unicodedata.category(word[0])[0] == "S"


def is_emoji(word: str) -> bool:
    """Whether it is an emoji, or a sign like one."""
    return unicodedata.category(word[0]) == "So"


class Vocabulary:
    """The words that a reader was trained on, and those for what its bundle cannot draw; both lower case.

    known: empty if unknown; then no word is strange.
    """

    def __init__(self, known: Collection[str], undrawable: Collection[str] = ()) -> None:
        self.known, self.undrawable = frozenset(known), frozenset(undrawable)

    def is_strange(self, word: str) -> bool:
        """Whether none of the reader's training texts has this word or emoji."""
        stem = word.partition("'")[0]
        return bool(self.known) and is_word(word) and not {word, stem} & self.known

    def is_noise(self, word: str) -> bool:
        """Whether the reader could only guess: an emoji that it never saw, or a word for what cannot be drawn.

        Any other strange word shares letters with words that it saw.
        """
        return word in self.undrawable or (self.is_strange(word) and is_emoji(word))

    def spelt_out(self, words: Sequence[str], endings: Mapping[str, str]) -> list[str]:
        """The words; an unknown contraction becomes two words if its first one is known: she's, she is.

        endings: what follows an apostrophe -> its full word.
        """
        spelt: list[str] = []
        for word in words:
            first, _, rest = word.partition("'")
            two = word not in self.known and first in self.known and rest in endings
            spelt += [first, endings[rest]] if two else [word]
        return spelt

    def with_letters_in_order(self, word: str) -> str:
        """The word; two adjacent letters are swapped if exactly one known word results: foerst, forest.

        Known words and those of fewer than three letters stay.
        """
        if word in self.known or len(word) < 3:
            return word
        exchanged = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(len(word) - 1)}
        found = exchanged & self.known
        return found.pop() if len(found) == 1 else word


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
