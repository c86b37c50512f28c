"""Noun phrases of the people: names, groups and pronouns, and the slots that hold them."""

from __future__ import annotations

from .clothes import Clothes
from .references import Reference, alone, from_pronoun, group, named, one_named

_PRONOUN_LEAVES = 0.35
"""How often somebody leaves, or stays, by pronoun, where it tells who."""


class Nouns(Clothes):
    """Who is spoken of. A noun phrase that fills a slot sets the number that verbs agree with."""

    def _set(self, reference: Reference) -> Reference:
        self.plural = reference.plural
        return reference

    def _one(self, name: str, attach: bool, last: bool = True, genitive: bool = False) -> str:
        text = name if genitive else one_named(self.rng, name, self.voice)
        if attach and self.attaching and name in self.clothes and self.rng.random() < 0.45:
            worn = self._garment(self.clothes[name], (name,))
            plural = not worn.startswith(("a ", "an ", "his ", "her ", "its "))
            if last and self.after.is_pair and (plural or self.voice.name == "learner"):
                return text
            del self.clothes[name]
            self.said.add("outfits")
            if not self.clothes:
                self.pending.discard("outfits")
            return f"{text} in {worn}"
        return text

    def _names(self, people: tuple[str, ...], attach: bool = True, genitive: bool = False) -> Reference:
        texts = [
            self._one(name, attach and not genitive, index == len(people) - 1, genitive)
            for index, name in enumerate(people)
        ]
        return named(self.rng, texts, self.pronouns.get(people[0], "they"))

    def _subject(self, attach: bool) -> Reference:
        """The subject of a main frame: pronouns where the people are known, names where they are not."""
        after = self.after
        if self.introduced and self.rng.random() < 0.65:
            return self._pronoun()
        self.said.add("who")
        return self._names(after.characters, attach)

    def _pronoun(self) -> Reference:
        if self.after.is_pair:
            return group(self.rng)
        return alone(self.rng, self.pronouns[self.after.characters[0]])

    def _wearer(self) -> Reference:
        """Whose clothes a sentence is about."""
        if self.wearers == self.after.characters:
            if self.rng.random() < 0.6:
                return self._pronoun()
            return self._names(self.wearers, attach=False)
        name = self.wearers[0]
        pronoun = self.pronouns[name]
        others = {self.pronouns[other] for other in self.after.characters if other != name}
        if pronoun in ("he", "she") and set(self.after.characters) == {"Mirel", "Dovan"} and self.rng.random() < 0.2:
            if pronoun not in others and "they" not in others:
                return from_pronoun(pronoun)
        return self._names((name,), attach=False)

    def _told_apart(self) -> bool:
        """True if one of two leaves and their pronouns tell which: she leaves, he stays."""
        plan = self.plan
        if plan.kind != "leave" or len(plan.left) != 1 or len(plan.stay) != 1:
            return False
        pronouns = {self.pronouns[plan.left[0]], self.pronouns[plan.stay[0]]}
        return pronouns == {"he", "she"} and {plan.left[0], plan.stay[0]} <= {"Mirel", "Dovan", "Bixo"}

    def _both(self) -> Reference:
        text = self.rng.choice(
            ("they", "they", "they", "both", "they both", "the two", "both of them", "the two of them")
        )
        return Reference(text, "them", True, "their", "themselves")

    def _noun_slot(self, slot: str, genitive: bool) -> str | None:
        plan, rng, attach = self.plan, self.rng, not genitive
        stay = plan.stay[:1] if plan.kind in ("join", "leave", "replace") else ()
        if slot in ("s", "o", "pos", "self"):
            if self.subject is None:
                self.subject = self._subject(attach)
            reference = self._set(self.subject)
            return {
                "s": reference.subject, "o": reference.object, "pos": reference.possessive, "self": reference.reflexive
            }[slot]  # fmt: skip
        if slot == "s.pro":
            return self._set(self._who_pronoun()).subject
        if slot == "all":
            return self._set(self._both() if self.after.is_pair else self._who_pronoun()).subject
        if slot == "all.n":
            return self._set(self._both() if self.after.is_pair else self._who_pronoun()).subject
        if slot == "all.o":
            return self._who_pronoun().object
        if slot in ("n", "N"):
            reference = self._set(self._names(plan.new or self.after.characters, attach and slot == "n", genitive))
            return reference.subject.upper() if slot == "N" else reference.subject
        if slot == "n.pro":
            return self._set(from_pronoun(self.pronouns[plan.new[0]])).subject
        if slot == "x" and self._told_apart() and rng.random() < _PRONOUN_LEAVES:
            return self._set(from_pronoun(self.pronouns[plan.left[0]])).subject
        if slot in ("k", "k.n") and plan.kind == "leave" and self._told_apart() and rng.random() < _PRONOUN_LEAVES:
            return self._set(from_pronoun(self.pronouns[stay[0]])).subject
        if slot in ("x", "X", "p"):
            people = self.before.characters if slot == "p" and self.before else plan.left
            text = self._set(self._names(people, attach=False)).subject
            return text.upper() if slot == "X" else text
        if slot in ("xpos", "ppos"):
            people = self.before.characters if slot == "ppos" and self.before else plan.left
            return self._names(people, genitive=True).genitive
        if slot == "xpos.s":
            return from_pronoun(self.pronouns[plan.left[0]]).possessive if len(plan.left) == 1 else "their"
        if slot == "x.pro.o":
            return from_pronoun(self.pronouns[plan.left[0]]).object if len(plan.left) == 1 else "them"
        if slot == "k":
            pronoun = plan.kind == "join" and rng.random() < 0.45
            if pronoun:
                return self._set(from_pronoun(self.pronouns[stay[0]])).subject
            return self._set(self._names(stay)).subject
        if slot == "k.n":
            return self._set(self._names(stay, attach)).subject
        if slot == "ko":
            if plan.kind == "leave":
                return self._names(stay, attach=False).object
            reference = from_pronoun(self.pronouns[stay[0]])
            return reference.object if rng.random() < 0.5 else self._names(stay, attach=False).object
        if slot in ("kpos", "kself", "kpro.o"):
            reference = from_pronoun(self.pronouns[stay[0]])
            return {"kpos": reference.possessive, "kself": reference.reflexive, "kpro.o": reference.object}[slot]
        if slot.endswith("id") and slot in ("id", "n.id", "x.id", "p.id", "s.id"):
            people = {
                "id": self.after.characters, "s.id": self.wearers, "n.id": plan.new or self.after.characters,
                "x.id": plan.left, "p.id": self.before.characters if self.before else (),
            }[slot]  # fmt: skip
            case = str.lower if rng.random() < 0.8 else str
            return rng.choice((",", "+", " ", "&")).join(case(name) for name in people)
        return None
