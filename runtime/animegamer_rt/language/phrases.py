"""A bundle's language file: the phrases of answers, and the few words that its reader's network does not decide.

The runtime knows no language: without this file a reader goes by its network alone, and says nothing of what it did not
understand.
"""

from __future__ import annotations

import contextlib
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from animegamer_rt.errors import ConfigError

from .answers import ANSWERS

PHRASES: Mapping[str, str] = {
    "caption": "people position manner motion hour place",
    "dressed": "name clothes",
    "and": "",
    "description": "people motion manner place hour",
    "suggestion": "name motion place hour",
    "advice": "value",
    **{code: " ".join((*row.fields, "bundle")) for code, row in ANSWERS.items()},
}
"""Phrase -> the values that it may contain in braces: of captions and sentences, and of each code of an answer."""

CAPTION_FORM: Mapping[str, str] = {
    "caption": "Character: {people} {position}; Motion: {manner} {motion}; Background: {hour} {place}.",
    "dressed": "{name} in {clothes}",
    "and": " and ",
}
"""The published model's captions: for a bundle without its own phrases."""


@dataclass(frozen=True, slots=True)
class LanguageFile:
    """The content of a language file; everything is optional.

    endings: what follows an apostrophe -> its full word. articles: words that no notice names. said: a word of the
    bundle -> its form in a sentence. phrases: see PHRASES.
    """

    endings: Mapping[str, str] = field(default_factory=dict)
    articles: tuple[str, ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    phrases: Mapping[str, str] = field(default_factory=dict)


class Language:
    """The phrases of a language file. Raises ConfigError, with the key, for invalid content."""

    def __init__(self, file: LanguageFile | None = None) -> None:
        self.file = file = file or LanguageFile()
        for name, phrase in file.phrases.items():
            with _at(f"phrases: {name}"):
                _check(phrase, _known(name, PHRASES).split())

    def said(self, word: str) -> str:
        """A bundle's word as it appears in a sentence."""
        return self.file.said.get(word, word)

    def say(self, phrase: str, **values: object) -> str:
        """The phrase with these values; empty if the bundle has none of this name."""
        return (self.file.phrases.get(phrase) or CAPTION_FORM.get(phrase, "")).format(**values)


@contextlib.contextmanager
def _at(where: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.what, where=where, found=error.found, expected=error.expected) from None


def _known(name: str, table: Mapping[str, str]) -> str:
    if name not in table:
        raise ConfigError("unknown key", found=repr(name), expected=", ".join(table))
    return table[name]


def _check(phrase: str, known: list[str]) -> None:
    try:
        parts = list(string.Formatter().parse(phrase))
    except ValueError as error:
        raise ConfigError("invalid phrase", found=f"{error}: {phrase!r}") from error
    values = [
        f"{value}{form and ':' + form}{'!' if kind else ''}" for _, value, form, kind in parts if value is not None
    ]
    if unknown := [name for name in values if name not in known]:
        found, expected = f"{unknown[0]!r} in {phrase!r}", ", ".join(sorted(known)) or "none"
        raise ConfigError("unknown slot or value", found=found, expected=expected)
