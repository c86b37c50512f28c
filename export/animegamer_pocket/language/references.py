"""How a text refers to characters: by name, nickname, description or pronoun."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from .lexicon import load
from .voices import Voice

_PRONOUNS = {
    "Mirel": ("she",) * 19 + ("they",),
    "Dovan": ("he",) * 19 + ("they",),
    "Zelki": ("he",) * 12 + ("she",) * 4 + ("they",) * 3 + ("it",),
    "Bixo": ("it",) * 9 + ("he",) * 8 + ("she",) + ("they",) * 2,
    "Tofi": ("he",) * 9 + ("it",) * 6 + ("she",) * 4 + ("they",),
}
_FORMS = {
    "she": ("her", "her", "herself"),
    "he": ("him", "his", "himself"),
    "it": ("it", "its", "itself"),
    "they": ("them", "their", "themselves"),
}
_SPOKEN_TO = 0.04
"""How often a player speaks to the character: "you jump"."""

_SINGULAR_GROUPS = frozenset(
    """everyone;everybody;the pair;the duo;each of them;the couple;the gang;the team;our pair;our duo;the whole bunch;
    the dynamic duo;the twosome;the crew;the lot of them;the pair of them""".replace("\n", "")
    .replace("    ", "")
    .split(";")
)


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A noun phrase. object: after a verb; possessive and reflexive: matching pronouns."""

    subject: str
    object: str
    plural: bool
    possessive: str
    reflexive: str

    @property
    def possessive_and_reflexive(self) -> tuple[str, str]:
        """The matching pronouns: his, himself."""
        return self.possessive, self.reflexive

    @property
    def genitive(self) -> str:
        """As in "Tofi's turn"."""
        if self.subject in _FORMS:
            return _FORMS[self.subject][1]
        return self.subject + "'s"


def pronoun_of(rng: random.Random, character: str) -> str:
    """he, she, it or they."""
    return rng.choice(_PRONOUNS[character])


def from_pronoun(pronoun: str) -> Reference:
    """The reference that a pronoun makes."""
    return Reference(pronoun, _FORMS[pronoun][0], pronoun == "they", *_FORMS[pronoun][1:])


def one_named(rng: random.Random, character: str, voice: Voice) -> str:
    """One character by name, nickname or description."""
    people = load("people")
    chance = rng.random()
    if chance < voice.described:
        return people[f"{character} descriptions"].text(rng)
    if chance < voice.described + voice.nicked:
        return people[f"{character} nicks"].text(rng)
    return character


def named(rng: random.Random, names: Sequence[str], pronoun: str) -> Reference:
    """One or two characters by name or description, with what they wear."""
    if len(names) == 1:
        return Reference(names[0], names[0], False, *_FORMS[pronoun][1:])
    a, b = names
    text = rng.choice(
        [f"{a} and {b}"] * 14
        + [f"{a} & {b}", f"both {a} and {b}", f"{a} plus {b}", f"{a} as well as {b}", f"{a} n {b}", f"{a} + {b}"]
        + [f"{a} together with {b}"]
        + ([f"the friends {a} and {b}", f"our friends {a} and {b}"] if a[0].isupper() and b[0].isupper() else [])
    )
    return Reference(text, text, True, "their", "themselves")


def group(rng: random.Random) -> Reference:
    """Both characters of a pair: they, both, everyone, the two of them."""
    text = load("people")["pair"].text(rng)
    return Reference(
        text,
        {"they": "them", "they both": "them both", "all": "them all"}.get(text, text),
        text not in _SINGULAR_GROUPS,
        "their",
        "themselves",
    )


def alone(rng: random.Random, pronoun: str) -> Reference:
    """The only character of the scene: a pronoun, or "our hero"."""
    chance = rng.random()
    if chance < _SPOKEN_TO:
        return Reference("you", "you", True, "your", "yourself")
    if chance < 0.87:
        return from_pronoun(pronoun)
    text = load("people")["one"].pick(rng, lambda phrase: phrase.text not in _FORMS).text
    return Reference(text, text, False, *_FORMS[pronoun][1:])
