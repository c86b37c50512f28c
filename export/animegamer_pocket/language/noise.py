"""Typing errors: typos, lower case, missing punctuation.

A typo never turns a word into one of another concept: a misspelling stays closer to its own word than to any other word
of the lexicon.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Mapping

from . import inflect
from .lexicon import concept_words

_NEIGHBOURS = {
    "q": "wa", "w": "qes", "e": "wrd", "r": "etf", "t": "ryg", "y": "tuh", "u": "yij", "i": "uok", "o": "ipl",
    "p": "ol", "a": "qsz", "s": "awdx", "d": "sefc", "f": "drgv", "g": "fthb", "h": "gyjn", "j": "hukm", "k": "jil",
    "l": "ko", "z": "asx", "x": "zsdc", "c": "xdfv", "v": "cfgb", "b": "vghn", "n": "bhjm", "m": "njk",
}  # fmt: skip

_SMALL_WORDS = frozenset(
    """
    the and with without not but then now they them him her his its she are was were who what this that there here into
    onto from for off out over back away too also only just instead more less very all both one two again stop start
    keep make let can has have had does did leave leaves join joins both alone together some any still while where when
    hat hot cat dog wall talk wake wise wish mad bad sad real fast last lost love live life time take
    """.split()
)


@functools.cache
def _known() -> Mapping[str, frozenset[str]]:
    """All forms of the lexicon's words, with their concepts."""
    known: dict[str, frozenset[str]] = {}
    for word, concepts in concept_words().items():
        forms = {word}
        if word.isalpha():
            forms |= {inflect.third_person(word), inflect.ing(word), inflect.past(word), inflect.plural(word)}
        for form in forms:
            known[form] = known.get(form, frozenset()) | concepts
    return known


@functools.cache
def _known_by_deletion() -> Mapping[str, frozenset[str]]:
    """Known words, indexed by themselves and by every one-letter deletion."""
    found: dict[str, set[str]] = {}
    for word in {*_known(), *_SMALL_WORDS}:
        for key in _deletions(word):
            found.setdefault(key, set()).add(word)
    return {key: frozenset(words) for key, words in found.items()}


def _deletions(word: str) -> set[str]:
    return {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}


def is_safe(word: str, typo: str) -> bool:
    """Whether no known word of another concept is one edit from the typo.

    One edit: a letter swapped with its neighbour, dropped, added or replaced. Words of the same concept may be close.
    """
    own = _known().get(word, frozenset())
    near = {known for key in _deletions(typo) for known in _known_by_deletion().get(key, ())}
    near -= {word}
    for other in near:
        concepts = _known().get(other, frozenset())
        if other in _SMALL_WORDS or (concepts and not concepts & own):
            return False
    return True


def misspell(rng: random.Random, word: str) -> str:
    """The word with one typo, or unchanged if no safe one is found. The first letter stays."""
    if len(word) < 4 or not word.isalpha():
        return word
    for _ in range(6):
        i = rng.randrange(1, len(word) - 1)
        kind = rng.randrange(4)
        if kind == 0:
            typo = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
        elif kind == 1:
            typo = word[:i] + word[i + 1 :]
        elif kind == 2:
            typo = word[:i] + word[i] + word[i:]
        else:
            typo = word[:i] + rng.choice(_NEIGHBOURS.get(word[i].lower(), word[i])) + word[i + 1 :]
        if typo.lower() != word.lower() and is_safe(word.lower(), typo.lower()):
            return typo.upper() if word.isupper() else typo
    return word


def with_typos(rng: random.Random, text: str, count: int) -> str:
    """The text with up to `count` misspelt words; a word of seven letters or more sometimes gets a second typo."""
    words = text.split(" ")
    for _ in range(count):
        index = rng.randrange(len(words))
        if not re.fullmatch(r"\W*[A-Za-z]{4,}\W*", words[index]):
            continue
        core = re.sub(r"\W", "", words[index])
        typo = misspell(rng, core)
        if len(core) >= 7 and typo != core and rng.random() < 0.2:
            second = misspell(rng, typo)
            typo = second if is_safe(core.lower(), second.lower()) else typo
        words[index] = words[index].replace(core, typo)
    return " ".join(words)


_TEXTING = {
    "you": "u", "are": "r", "and": "n", "please": "pls", "with": "w", "to": "2", "okay": "ok", "because": "cuz",
    "tonight": "2nite", "night": "nite", "going to": "gonna", "want to": "wanna", "for": "4", "thanks": "thx",
    "at": "@", "love": "luv", "something": "smth", "before": "b4", "everyone": "every1", "together": "2gether",
    "without": "w/o", "people": "ppl", "though": "tho", "right now": "rn", "good": "gd", "quick": "quik",
}  # fmt: skip


def texted(rng: random.Random, text: str) -> str:
    """The text as typed on a phone: abbreviations, lower case, little punctuation."""
    text = text.lower()
    for long, short in _TEXTING.items():
        if rng.random() < 0.45:
            text = re.sub(rf"\b{long}\b", short, text)
    text = re.sub(r"[;:]", ",", text) if rng.random() < 0.5 else text
    if rng.random() < 0.4:
        text = text.replace("'", "")
    if rng.random() < 0.4:
        text = text.replace(". ", rng.choice((" ", " n ", ", ", "\n"))).replace(",", "")
    return text.rstrip(".") + rng.choice(
        ("", "", "", " pls", " lol", " ok", " thx", "!!", " haha", "...", " plz", " :)", " rn")
    )


_ARTICLE = re.compile(r"\b(?:the|a|an) (?=[a-z])", re.IGNORECASE)
_THIRD = re.compile(
    r"\b(walk|run|jump|wave|dance|sit|sleep|bow|put|take|join|leave|wear|come|go|start|change|get)(?:e?s)\b"
)


def learned(rng: random.Random, text: str) -> str:
    """Learner's English: missing articles, a missing -s, "is want"."""
    if rng.random() < 0.75:
        text = _ARTICLE.sub(lambda match: "" if rng.random() < 0.65 else match.group(), text)
    if rng.random() < 0.5:
        text = _THIRD.sub(lambda match: match.group(1) if rng.random() < 0.8 else match.group(), text)
    return text


def untidy(rng: random.Random, text: str, amount: float) -> str:
    """Random typos, case and punctuation. amount: 0 leaves the text unchanged, 1 is a hurried phone user."""
    if rng.random() < 0.12 + 0.35 * amount:
        text = with_typos(rng, text, rng.choice((1, 1, 2)))
    if rng.random() < 0.15 + 0.5 * amount:
        text = text.lower()
    elif rng.random() < 0.03:
        text = text.upper()
    if rng.random() < 0.12 + 0.4 * amount:
        text = text.rstrip(".!")
    if rng.random() < 0.04 + 0.1 * amount:
        text = text.replace("'", "")
    if rng.random() < 0.02 + 0.08 * amount:
        text = text.replace(",", "")
    return text
