"""Fills the slots of a template of a sentence class: characters, motions, places, hours and clothes by letters.

{a} {b} {c} {x} name a character; {a.he} {a.him} {a.his} are its pronouns. {m} and {w} are motions: {m.v} third person,
{m.b} base, {m.p} base for two, {m.ing}, {m.n} noun. {to.v} {to.b} {to.ing} are what one character does to another. {p}
and {q} are places: {p.at} {p.np} {q.b}. {h} and {i} are hours, {h.at}. {g} and {k} are clothes, {g.b} without article.
{t} is an optional tail, {T} a tail.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Mapping

from . import inflect
from .lexicon import load
from .references import from_pronoun, one_named
from .text import with_an
from .voices import VOICE_BY_NAME

_SLOT = re.compile(r"\{([a-zA-Z]+)(?:\.([a-z]+))?\}")
_VOICE = dataclasses.replace(VOICE_BY_NAME["plain"], described=0.24, nicked=0.03)
_MOVING = re.compile(r"^(through|across|along|over|up|down|around|into|past)\b")


@dataclasses.dataclass(slots=True)
class Filling:
    """What the letters of a template stand for. phrases: what fills a slot whatever it means."""

    people: Mapping[str, str] = dataclasses.field(default_factory=dict)
    motions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hours: Mapping[str, str] = dataclasses.field(default_factory=dict)
    clothes: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Letter -> outfit, letter of the wearer."""
    phrases: Mapping[str, Callable[[], str]] = dataclasses.field(default_factory=dict)
    pronouns: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def fill(self, rng: random.Random, template: str) -> str:
        """The template's text."""
        verbs = {
            letter: load("motions")[motion].pick(rng, lambda phrase: phrase.is_plain).text
            for letter, motion in self.motions.items()
            if motion
        }

        def slot(match: re.Match[str]) -> str:
            letter, form = match.groups()
            if letter in self.phrases:
                return self.phrases[letter]()
            if letter in self.people:
                return self._person(rng, letter, form)
            if letter in self.motions:
                return _verb(rng, verbs[letter], self.motions[letter], form, self._possessive())
            if letter in self.places:
                return place(rng, self.places[letter], form)
            if letter in self.hours:
                return hour(rng, self.hours[letter], form)
            outfit, wearer = self.clothes[letter]
            return self._garment(rng, outfit, wearer, form)

        text = _SLOT.sub(slot, template)
        return with_an(text)

    def _possessive(self) -> str:
        return from_pronoun(self.pronouns.get("a", "they")).possessive

    def _person(self, rng: random.Random, letter: str, form: str | None) -> str:
        if form is None:
            return one_named(rng, self.people[letter], _VOICE)
        reference = from_pronoun(self.pronouns[letter])
        return {"he": reference.subject, "him": reference.object, "his": reference.possessive}[form]

    def _garment(self, rng: random.Random, outfit: str, wearer: str, form: str | None) -> str:
        who = self.people.get(wearer, "")
        text = load("clothes")[outfit].pick(rng, lambda phrase: phrase.who in ("", who)).text
        text = text.replace("{pos}", from_pronoun(self.pronouns.get(wearer, "they")).possessive)
        return re.sub(r"^(the|a|an|his|her|its|their) ", "", text) if form == "b" else text


def _verb(rng: random.Random, phrase: str, motion: str, form: str | None, possessive: str) -> str:
    if form == "n":
        return load("motion_nouns")[motion].text(rng)
    phrase = phrase.replace("{pos}", possessive).replace("{self}", "themselves")
    forms = {"v": inflect.third_person, "b": inflect.base, "p": inflect.base, "ing": inflect.ing}
    return forms[form or "b"](phrase)


def place(rng: random.Random, name: str, form: str | None = "at") -> str:
    """A place after a verb ("at"), as a noun phrase ("np") or without article ("b")."""
    places = load("places")
    if form == "at":
        return places[f"{name} at"].pick(rng, lambda phrase: not _MOVING.match(phrase.text)).text
    text = places[name].text(rng)
    return re.sub(r"^(the|a|an) ", "", text) if form == "b" else text


def hour(rng: random.Random, name: str, form: str | None = None) -> str:
    """An hour as a noun phrase, or as an adverbial ("at")."""
    return load("hours")[f"{name} at" if form == "at" else name].text(rng)
