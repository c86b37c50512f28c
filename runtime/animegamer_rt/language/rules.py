"""A bundle's language file: classes of words, patterns of what they do to a scene, and the phrases of answers.

The runtime knows no language: without this file a reader goes by its network alone, and says nothing of what it did not
understand.
"""

from __future__ import annotations

import contextlib
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from animegamer_rt.errors import ConfigError

from .patterns import BUILT_IN, Match, Pattern, Slots, WordClass
from .words import MAX_WORDS

RULES: Mapping[str, str] = {
    "company": "who",  # who is there as well: "the fox runs with the old robot in the rain"
    "crowd": "",  # more people than a picture has room for: "three foxes"
    "goes_on": "",  # asks for what is shown: "keep going"
    "undressed": "",  # clothes that come off and are not named: "takes hers off"
    "dressed_alike": "",  # somebody else's clothes, not named again: "he gets one too"
    "clothes_unclear": "",  # clothes that are named may be those that are not worn: "no coat on"
    "clothes": "word",  # may name clothes: "in a gown"
}
"""The rules, and the slot that the patterns of each fill."""

PHRASES: Mapping[str, str] = {
    "caption": "people position manner motion hour place",
    "dressed": "name clothes",
    "and": "",
    "description": "people motion manner place hour",
    "suggestion": "name motion place hour",
    "nothing_understood": "",
    "not_understood": "words",
    "more": "count",
    "not_all_understood": "",
    "nothing_changes": "",
    "who_does_what": "",
    "left_out": "people",
    "crowd": "",
    "knows": "bundle words",
    "cut": "count",
    "nobody_seen": "bundle people",
}
"""The phrases, and the values that each may have in braces."""

CAPTION_FORM: Mapping[str, str] = {
    "caption": "Character: {people} {position}; Motion: {manner} {motion}; Background: {hour} {place}.",
    "dressed": "{name} in {clothes}",
    "and": " and ",
}
"""How captions of the published model read: for a bundle that has no phrases of its own."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What the pattern `find` finds becomes `say`: words, and `$slot` for what a slot has."""

    find: str
    say: str


@dataclass(frozen=True, slots=True)
class LanguageFile:
    """What a language file holds; all of it may be left out.

    classes, rules: RULES; `patterns` says how they are written. endings: what follows an apostrophe -> the word that it
    is short for. rewrites: done in this order before anything is read. articles: words that no notice names.
    clothes_asked: sentences with `$word` by which the network says which clothes a word names. silent_endings: letters
    that a motion loses when it is inflected ("dance", "dancing"). said: a word of the bundle -> how a sentence has it.
    phrases: PHRASES.
    """

    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    endings: Mapping[str, str] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    articles: tuple[str, ...] = ()
    clothes_asked: tuple[str, ...] = ()
    silent_endings: str = ""
    said: Mapping[str, str] = field(default_factory=dict)
    phrases: Mapping[str, str] = field(default_factory=dict)


class Language:
    """The rules and phrases of a language file. Raises ConfigError, with the key, for what is not sound."""

    def __init__(self, file: LanguageFile | None = None) -> None:
        self.file = file = file or LanguageFile()
        classes, self._rules = dict(BUILT_IN), {name: list[Pattern]() for name in RULES}
        for name, entries in file.classes.items():
            with _at(f"classes: {name}"):
                classes[name] = WordClass(entries)
        for name, texts in file.rules.items():
            with _at(f"rules: {name}"):
                slot = _known(name, RULES)
            for number, text in enumerate(texts):
                with _at(f"rules: {name}[{number}]"):
                    self._rules[name].append(pattern := Pattern(text, classes))
                    _check(text, [slot] if slot else [], pattern.slots)
        self._rewrites = list[tuple[Pattern, str]]()
        for number, rewrite in enumerate(file.rewrites):
            with _at(f"rewrites[{number}]"):
                self._rewrites.append((pattern := Pattern(rewrite.find, classes), rewrite.say))
                _check(rewrite.say, _slots_in(rewrite.say), pattern.slots)
        for number, sentence in enumerate(file.clothes_asked):
            with _at(f"clothes_asked[{number}]"):
                _check(sentence, _slots_in(sentence), {"word"})
        for name, phrase in file.phrases.items():
            with _at(f"phrases: {name}"):
                _check(phrase, _values_in(phrase), _known(name, PHRASES).split())

    def find(self, rule: str, words: Sequence[str]) -> Iterator[Match]:
        """What each pattern of a rule finds, one pattern after the other."""
        for pattern in self._rules[rule]:
            yield from pattern.find(words)

    def has(self, rule: str, words: Sequence[str]) -> bool:
        """Whether a pattern of the rule is there."""
        return next(self.find(rule, words), None) is not None

    def rewritten(self, words: Sequence[str]) -> list[str]:
        """The words after all rewrites, at most MAX_WORDS: "Tofi waves, no wait, not Tofi, Bixo" is "Bixo waves"."""
        for pattern, say in self._rewrites:
            done, after = list[str](), 0
            for match in pattern.find(words):
                done += [*words[after : match.start], *filled(say, match.slots)]
                after = match.end
            words = [*done, *words[after:]][:MAX_WORDS]
        return list(words)

    def said(self, word: str) -> str:
        """How a sentence has a word of the bundle."""
        return self.file.said.get(word, word)

    def say(self, phrase: str, **values: object) -> str:
        """The phrase with these values; empty if the bundle has none of this name."""
        return (self.file.phrases.get(phrase) or CAPTION_FORM.get(phrase, "")).format(**values)


def filled(text: str, slots: Slots) -> list[str]:
    """The words of a text, and for `$slot` those that the slot has."""
    return [word for part in text.split() for word in (slots[part[1:]] if part[0] == "$" else [part])]


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


def _slots_in(text: str) -> list[str]:
    return [part[1:] for part in text.split() if part[0] == "$"]


def _values_in(phrase: str) -> list[str]:
    try:
        parts = list(string.Formatter().parse(phrase))
    except ValueError as error:
        raise ConfigError("a phrase cannot be read", found=f"{error}: {phrase!r}") from error
    return [f"{value}{form and ':' + form}{'!' if kind else ''}" for _, value, form, kind in parts if value is not None]


def _check(text: str, used: Collection[str], known: Collection[str]) -> None:
    if unknown := [name for name in used if name not in known]:
        found, expected = f"{unknown[0]!r} in {text!r}", ", ".join(sorted(known)) or "none"
        raise ConfigError("no such slot or value", found=found, expected=expected)
