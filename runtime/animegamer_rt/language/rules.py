"""A bundle's language file: classes of words, patterns of what they do to a scene, and the phrases of answers.

The runtime knows no language: without this file a reader goes by its network alone, and says nothing of what it did not
understand. How the file writes patterns:

    !<away> <beside> <any>? who=<any> &<joint>

A pattern is a list of elements, each with the sentence's next words:

    word      this word
    <class>   a word or a phrase of the class
    $slot     the words that the slot has
    slot=..   the element's words are kept under this name
    ..?  ..+  ..*    at most once, once or more, any number: as few of <any> as will do, of others as many as there are
    !<class>  first: the word before is not of the class
    &<class>  last: the next word is of the class, but not part of the match

A class lists words, phrases ("i mean"), endings ("*ly": a longer word that ends so), and words that are left out again
("!early"). Built in are <any>, <letters> a to z only, <number>, <sign> anything else, and the <edge> before and after a
sentence. The last word of a pattern is also found before an apostrophe: `it` in "it's".

Patterns come with bundles, so none may take exponential time: at most two elements repeat, one slot is used again, and
no failed attempt is made twice.
"""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from animegamer_rt.errors import ConfigError

from .words import MAX_WORDS

MAX_ELEMENTS = 16
_ELEMENT = re.compile(r"([!&]?)(?:([a-z]+)=)?(<[a-z_]+>|\$[a-z]+|[a-z0-9']+)([?+*]?)")
_ENTRY = re.compile(r"[*!]?[^\s*!<>]+|<[a-z]+>|[^\s*!<>]+( [^\s*!<>]+)+")

Slots = Mapping[str, Sequence[str]]

RULES: Mapping[str, str] = {
    "company": "who",  # who else is there: "the fox runs with the old robot in the rain"
    "crowd": "",  # more people than fit in a picture: "three foxes"
    "goes_on": "",  # asks for what is shown: "keep going"
    "undressed": "",  # unnamed clothes that come off: "takes hers off"
    "dressed_alike": "",  # somebody else's clothes, not named again: "he gets one too"
    "clothes_unclear": "",  # named clothes may be the ones not worn: "no coat on"
    "clothes": "word",  # may name clothes: "in a gown"
}
"""Rule -> the slot that its patterns fill."""

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
"""Phrase -> the values that it may contain in braces."""

CAPTION_FORM: Mapping[str, str] = {
    "caption": "Character: {people} {position}; Motion: {manner} {motion}; Background: {hour} {place}.",
    "dressed": "{name} in {clothes}",
    "and": " and ",
}
"""The published model's captions: for a bundle without its own phrases."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What the pattern `find` matches becomes `say`: words, and `$slot` for a slot's words."""

    find: str
    say: str


@dataclass(frozen=True, slots=True)
class LanguageFile:
    """The content of a language file; everything is optional.

    classes, rules: see RULES and `Pattern`. endings: what follows an apostrophe -> its full word. rewrites: applied in
    order before anything is read. articles: words that no notice names. clothes_asked: sentences with `$word` by which
    the network identifies the clothes that a word names. silent_endings: letters that a motion loses when inflected
    ("dance", "dancing"). said: a word of the bundle -> its form in a sentence. phrases: see PHRASES.
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


@dataclass(frozen=True, slots=True)
class Match:
    """The words [start, end) of a sentence, and the slots' words."""

    start: int
    end: int
    slots: Slots


class WordClass:
    """A class of words. Raises ConfigError for an invalid entry."""

    def __init__(self, entries: Sequence[str]) -> None:
        for entry in entries:
            if not _ENTRY.fullmatch(entry) or (entry[0] == "<" and entry[1:-1] not in (*_KINDS, "edge")):
                raise ConfigError("invalid entry of a class of words", found=repr(entry))
        self._words, self._left_out = set(entries), {entry[1:] for entry in entries if entry[0] == "!"}
        self._endings = tuple(entry[1:] for entry in entries if entry[0] == "*")
        self._kinds = [_KINDS[entry[1:-1]] for entry in entries if entry[0] == "<" and entry != "<edge>"]
        self._phrases = sorted((entry.split() for entry in entries if " " in entry), key=len, reverse=True)

    def ends(self, words: Sequence[str], at: int, last: bool = False) -> list[int]:
        """Where its words that begin at `at` may end, longest first; last: an apostrophe may follow them."""
        if not 0 <= at < len(words):
            return [at] if "<edge>" in self._words else []
        word = _stem(words[at]) if last else words[at]
        if word in self._left_out:
            return []
        known = word in self._words or any(word.endswith(one) and word != one for one in self._endings)
        single = [at + 1] if known or any(is_kind(word) for is_kind in self._kinds) else []
        return [at + len(phrase) for phrase in self._phrases if _are(phrase, words, at, last)] + single


_KINDS: Mapping[str, Callable[[str], bool]] = {
    "any": lambda word: True,
    "letters": lambda word: word.isascii() and word.isalpha(),
    "number": lambda word: word.isdecimal(),
    "sign": lambda word: not word[0].isalnum(),
}
BUILT_IN: Mapping[str, WordClass] = {name: WordClass([f"<{name}>"]) for name in (*_KINDS, "edge")}


@dataclass(frozen=True, slots=True)
class _Element:
    slot: str
    name: str
    times: str
    of: WordClass | None
    """None for a word or `$slot`."""


class Pattern:
    """A pattern over classes. Raises ConfigError if it is invalid or names an unknown class."""

    def __init__(self, text: str, classes: Mapping[str, WordClass]) -> None:
        self.text, self._elements = text, list[_Element]()
        self._not_after: WordClass | None = None
        self._before: WordClass | None = None
        parts = [_ELEMENT.fullmatch(part) or self._refuse(f"{part!r} is not an element") for part in text.split()]
        for number, part in enumerate(parts):
            look, slot, name, times = part.groups(default="")
            of = (classes.get(name[1:-1]) or self._refuse(f"no class {name}")) if name[0] == "<" else None
            if name[0] == "$" and name[1:] not in [one.slot for one in self._elements if not one.times]:
                self._refuse(f"no earlier element fills {name} once")
            if not look:
                self._elements.append(_Element(slot, name, times, of))
            elif slot or times or of is None or number != (0 if look == "!" else len(parts) - 1):
                self._refuse(f"{part[0]!r} is not the first !<class> or the last &<class>")
            elif look == "!":
                self._not_after = of
            else:
                self._before = of
        times = "".join(one.times or "1" for one in self._elements)
        if not {"1", "+"} & set(times) or len(times) > MAX_ELEMENTS:
            self._refuse(f"it has no required word, or over {MAX_ELEMENTS} elements")
        self.slots = {one.slot for one in self._elements} - {""}
        must = (one.name for one in self._elements[:-1] if one.of is None and one.times in ("", "+"))
        self._needed = {name for name in must if name[0] != "$"}
        self._recalled = [one.name[1:] for one in self._elements if one.name[0] == "$"]
        if sum(map(times.count, "+*")) > 2 or len(self._recalled) > 1:
            self._refuse("more than two elements have + or *, or more than one is a $slot")

    def find(self, words: Sequence[str]) -> Iterator[Match]:
        """Where it occurs, from the left and without overlaps."""
        start, failed = 0, set[object]()
        while self._needed.issubset(words) and start < len(words):
            preceded = self._not_after is not None and self._not_after.ends(words, start - 1)
            match = None if preceded else self._match(words, start, 0, start, {}, failed)
            if match is not None:
                yield match
            start = start + 1 if match is None else match.end

    def _match(
        self, words: Sequence[str], start: int, number: int, at: int, slots: Slots, failed: set[object]
    ) -> Match | None:
        """The match that began at `start` and whose elements from `number` are at the word `at`."""
        if number == len(self._elements):
            followed = self._before is None or self._before.ends(words, at, last=True)
            return Match(start, at, slots) if followed else None
        attempt = (number, at, *(slots.get(name) for name in self._recalled))
        if attempt in failed:
            return None
        element = self._elements[number]
        for end in self._reach(element, words, at, slots):
            taken = {**slots, element.slot: tuple(words[at:end])} if element.slot else slots
            match = self._match(words, start, number + 1, end, taken, failed)
            if match is not None:
                return match
        failed.add(attempt)
        return None

    def _reach(self, element: _Element, words: Sequence[str], at: int, slots: Slots) -> list[int]:
        """Where the element's words may end, best first."""
        last = self._before is None and element is self._elements[-1]
        said = slots[element.name[1:]] if element.name[0] == "$" else (element.name,)

        def once(position: int) -> list[int]:
            if element.of is not None:
                return element.of.ends(words, position, last)
            return [position + len(said)] if _are(said, words, position, last) else []

        if not element.times:
            return once(at)
        ends, edge = [at], [at]
        while edge:
            edge = [end for end in dict.fromkeys(end for one in edge for end in once(one)) if end not in ends]
            ends += edge
            if element.times == "?":
                break
        ends = ends[1:] if element.times == "+" else ends
        return ends if element.name == "<any>" else ends[::-1]

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"invalid pattern of words: {why}", found=repr(self.text))


class Language:
    """The rules and phrases of a language file. Raises ConfigError, with the key, for invalid content."""

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
        """All matches of a rule's patterns, pattern by pattern."""
        for pattern in self._rules[rule]:
            yield from pattern.find(words)

    def has(self, rule: str, words: Sequence[str]) -> bool:
        """Whether a pattern of the rule matches."""
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
        """A bundle's word as it appears in a sentence."""
        return self.file.said.get(word, word)

    def say(self, phrase: str, **values: object) -> str:
        """The phrase with these values; empty if the bundle has none of this name."""
        return (self.file.phrases.get(phrase) or CAPTION_FORM.get(phrase, "")).format(**values)


def filled(text: str, slots: Slots) -> list[str]:
    """The words of a text, with each `$slot` replaced by the slot's words."""
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
        raise ConfigError("invalid phrase", found=f"{error}: {phrase!r}") from error
    return [f"{value}{form and ':' + form}{'!' if kind else ''}" for _, value, form, kind in parts if value is not None]


def _check(text: str, used: Collection[str], known: Collection[str]) -> None:
    if unknown := [name for name in used if name not in known]:
        found, expected = f"{unknown[0]!r} in {text!r}", ", ".join(sorted(known)) or "none"
        raise ConfigError("unknown slot or value", found=found, expected=expected)


def _are(said: Sequence[str], words: Sequence[str], at: int, last: bool) -> bool:
    """Whether these words are found at `at`."""
    found = list(words[at : at + len(said)])
    return found == list(said) or (last and found != [] and [*found[:-1], _stem(found[-1])] == list(said))


def _stem(word: str) -> str:
    return word.partition("'")[0] or word
