"""The words of the pocket world: phrases by concept, read from the text files in `phrases/`.

A file has sections `[concept]`. A section holds comma-separated phrases; the line that starts with `*` holds the most
common ones. `(a|b|)` in a phrase stands for each alternative, or for nothing. A mark after a phrase restricts it: `+`
strong, `-` weak, `@d` by day, `@n` at night, `@1` one character, `@2` two, `@m` Mirel only. `{pos}` and `{self}` stand
for the possessive and the reflexive pronoun.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "phrases"

_COMMON_SHARE = 0.4
"""How often a phrase comes from the line of the most common ones."""

_DRAWS = 8
_MARK = re.compile(r"\s+(\+|-|@\w)$")


@dataclasses.dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase and where it fits. strength: +1 strong, -1 weak, 0 any. hour: "d", "n" or "". count: 1, 2 or 0 (any)."""

    text: str
    strength: int = 0
    hour: str = ""
    count: int = 0
    who: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it has no mark of strength, hour or number."""
        return not (self.strength or self.hour or self.count)


@dataclasses.dataclass(frozen=True, slots=True)
class Phrases:
    """The phrases of one concept. common: the most common, with repeats as weights; rest: the others, once each."""

    common: tuple[Phrase, ...]
    rest: tuple[Phrase, ...]

    def pick(self, rng: random.Random, fits: Callable[[Phrase], bool] = lambda phrase: True) -> Phrase:
        """A random fitting phrase. Raises IndexError if there is none."""
        pools = (self.common, self.rest) if rng.random() < _COMMON_SHARE else (self.rest, self.common)
        for pool in pools:
            for _ in range(_DRAWS if pool else 0):  # Usually finds one faster than checking every phrase.
                if fits(phrase := rng.choice(pool)):
                    return phrase
            fitting = [phrase for phrase in pool if fits(phrase)]
            if fitting:
                return rng.choice(fitting)
        raise IndexError("no phrase fits")

    def text(self, rng: random.Random) -> str:
        """The text of a random phrase."""
        return self.pick(rng).text

    @property
    def texts(self) -> tuple[str, ...]:
        """Each phrase's text once."""
        return tuple(dict.fromkeys(phrase.text for phrase in (*self.common, *self.rest)))


def expand(pattern: str) -> Iterator[str]:
    """Every expansion of a pattern with `(a|b|)`. Brackets without a bar are text."""
    pieces = re.split(r"\(([^()]*\|[^()]*)\)", pattern)
    parts = [piece.split("|") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    for words in itertools.product(*parts):
        yield " ".join("".join(words).split())


def sections(path: Path) -> dict[str, list[str]]:
    """The lines of a file below each line `== name`, without empty lines and those that start with `# `."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            lines = found.setdefault(line[3:], [])
        elif line.strip() and not line.startswith("# "):
            lines.append(line)
    return found


def parse_sections(text: str) -> dict[str, Phrases]:
    """The sections of a phrase file."""
    sections: dict[str, tuple[list[Phrase], list[Phrase]]] = {}
    common: list[Phrase] = []
    rest: list[Phrase] = []
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("# "):
            continue
        if line.startswith("["):
            common, rest = sections.setdefault(line[1:-1], ([], []))
            continue
        target = common if line.startswith("* ") else rest
        for item in _split(line.removeprefix("* ")):
            target.extend(item)
    return {name: Phrases(tuple(a), tuple(dict.fromkeys(b))) for name, (a, b) in sections.items()}


def _split(line: str) -> Iterator[list[Phrase]]:
    for item in line.split(","):
        if item.strip():
            yield [_phrase(text) for text in expand(item.strip())]


def _phrase(text: str) -> Phrase:
    strength, hour, count, who = 0, "", 0, ""
    while match := _MARK.search(text):
        mark = match.group(1)
        text = text[: match.start()]
        if mark in "+-":
            strength = 1 if mark == "+" else -1
        elif mark in ("@d", "@n"):
            hour = mark[1]
        elif mark == "@m":
            who = "Mirel"
        else:
            count = int(mark[1])
    return Phrase(text, strength, hour, count, who)


@functools.cache
def load(name: str) -> Mapping[str, Phrases]:
    """The sections of `phrases/NAME.txt`."""
    return parse_sections((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


FILES = (
    "clothes", "emoji", "hours", "manners", "motion_nouns", "motions", "people", "places",
    "unknown_motions", "unknown_people", "unknown_places", "words",
)  # fmt: skip


@functools.cache
def concept_words() -> Mapping[str, frozenset[str]]:
    """Every content word of the lexicon, with the concepts of its phrases.

    A concept is a section's first word: "beach at" and "beach seen" are both "beach".
    """
    found: dict[str, set[str]] = {}
    for name in FILES:
        if name in ("words", "emoji"):
            continue
        for section, phrases in load(name).items():
            concept = section.rsplit(" ", 1)[0] if name in ("places", "hours", "clothes", "people") else section
            for text in phrases.texts:
                for word in words_of(text):
                    found.setdefault(word, set()).add(concept)
    return {word: frozenset(concepts) for word, concepts in found.items()}


def words_of(text: str) -> Sequence[str]:
    """The words of a text in lower case, without punctuation."""
    return re.findall(r"[a-z][a-z'-]*", re.sub(r"\{\w+\}", " ", text.lower()))
