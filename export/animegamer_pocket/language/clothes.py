"""Clothes, and the slots they fill."""

from __future__ import annotations

import re

from animegamer_pocket.world.scene import OUTFITS

from . import inflect
from .lexicon import load
from .references import from_pronoun
from .state import State
from .text import lower

_PUT_ON = (
    "put on", "put on", "change into", "wear", "slip into", "get into", "throw on", "pull on", "don", "switch to",
    "get changed into", "step into", "climb into", "wriggle into",
)  # fmt: skip
_MASS = ("gear", "wear", "stuff", "best", "clothes")


class Clothes(State):
    """The clothes that a sentence's wearers put on and take off."""

    def _garment(self, outfit: str, wearers: tuple[str, ...]) -> str:
        text = (
            load("clothes")[outfit]
            .pick(self.rng, lambda phrase: not phrase.who or (phrase.who in wearers and len(wearers) == 1))
            .text
        )
        if len(wearers) > 1:
            text = re.sub(r"^(a|an|the|\{pos\}) (.*)$", lambda m: self._many(m.group(1), m.group(2)), text)
            return text.replace("{pos}", "their")
        return text.replace("{pos}", from_pronoun(self.pronouns[wearers[0]]).possessive)

    def _many(self, article: str, noun: str) -> str:
        head, joint, rest = noun.partition(" for ")
        nouns = (head if head.endswith(_MASS) else inflect.plural(head)) + joint + rest
        return nouns if article in ("a", "an") else f"{article} {nouns}"

    def _clothes_slot(self, slot: str) -> str:
        rng, outfit = self.rng, self.clothes[self.wearers[0]] if self.wearers[0] in self.clothes else self._outfit_now()
        clothes, wearers = load("clothes"), self.wearers
        one = self._who_pronoun() if wearers == self.after.characters else from_pronoun(self.pronouns[wearers[0]])
        if slot == "g.b":
            return re.sub(r"^(the|a|an|his|her|its|their) ", "", self._garment(outfit, wearers))
        if slot == "g":
            return self._garment(outfit, wearers)
        if slot == "dg":
            return self._garment(rng.choice([other for other in OUTFITS if other != outfit]), wearers)
        if slot == "gid":
            return rng.choice((outfit, outfit, outfit, "coat" if outfit == "raincoat" else outfit))
        if slot == "worn":
            if rng.random() < 0.25:
                text = clothes[f"{outfit} worn"].text(rng)
            else:
                start = rng.choice(("in", "in", "in", "in", "wearing", "dressed in", "clad in"))
                return f"{start} {self._garment(outfit, wearers)}"
            return text.replace("{pos}", one.possessive)
        if slot in ("don", "donb", "donv"):
            if rng.random() < 0.5:
                text = clothes[f"{outfit} don"].text(rng)
            else:
                text = f"{rng.choice(_PUT_ON)} {self._garment(outfit, wearers)}"
            text = text.replace("{pos}", one.possessive).replace("{self}", one.reflexive)
            if slot == "donb":
                return inflect.base(text)
            if self.voice.past:
                return inflect.past(text)
            return inflect.base(text) if self.plural else inflect.third_person(text)
        if slot in ("oldg", "oldg.b", "oldgid"):
            old = self._old_outfit()
            if slot == "oldgid":
                return old
            text = clothes[f"{old} off"].text(rng)
            if slot == "oldg.b":
                return re.sub(r"^(the|\{pos\}|that) ", "", text)
            if len(wearers) > 1:
                text = re.sub(
                    r"^(the|\{pos\}|that) (.*)$",
                    lambda m: self._many(m.group(1).replace("that", "the"), m.group(2)),
                    text,
                )
            return text.replace("{pos}", one.possessive)
        if slot in ("why", "why.l"):
            name = {"everyday": "dry" if self._old_outfit() == "raincoat" else "over"}.get(outfit, outfit)
            text = clothes[f"{name} why"].pick(rng, lambda phrase: phrase.hour in ("", self.night[0])).text
            return text if slot == "why" else lower(text)
        raise KeyError(slot)

    def _outfit_now(self) -> str:
        return self.after.outfits[self.after.characters.index(self.wearers[0])]
