"""Noun phrases for the characters: names, groups and pronouns, and the slots they fill."""

from __future__ import annotations

from animegamer_pocket.world.scene import OUTFITS

from .clothes import Clothes
from .references import Reference, alone, from_pronoun, group, named, one_named

_PRONOUN_LEAVES = 0.35
"""How often a pronoun that is unambiguous says who leaves or stays."""


class Nouns(Clothes):
    """The referents. A noun phrase that fills a slot sets the number for verb agreement."""

    def _set(self, reference: Reference) -> Reference:
        self.plural = reference.plural
        return reference

    def _one(self, name: str, attach: bool, last: bool = True, genitive: bool = False) -> str:
        """A character, sometimes with its new clothes. last: of several, whose clothes may seem everybody's."""
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
            self._one(name, attach and not genitive, index == len(people) - 1 and not self.apart, genitive)
            for index, name in enumerate(people)
        ]
        return named(self.rng, texts, self.pronouns.get(people[0], "they"))

    def _subject(self, attach: bool) -> Reference:
        """The subject of a main frame: pronouns for known characters, names for others."""
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
            if not self.early and self.rng.random() < 0.6:
                return self._pronoun()
            return self._names(self.wearers, attach=False)
        name = self.wearers[0]
        pronoun = self.pronouns[name]
        others = {self.pronouns[other] for other in self.after.characters if other != name}
        told = pronoun == {"Mirel": "she", "Dovan": "he"}.get(name)
        if told and (set(self.after.characters) == {"Mirel", "Dovan"} or self.rng.random() < 0.5):
            if pronoun not in others and "they" not in others and self.rng.random() < 0.45:
                return from_pronoun(pronoun)
        return self._names((name,), attach=False)

    def _worn_by(self, name: str) -> str:
        """The new clothes of one character after its name: dressed up for a gala."""
        kept, self.wearers = self.wearers, (name,)
        text = self._clothes_slot("worn")
        self.wearers = kept
        del self.clothes[name]
        self.said.add("outfits")
        if not self.clothes:
            self.pending.discard("outfits")
        return text

    def _returning(self) -> Reference:
        """Who returns: those who left last, by name, pronoun or as the other one."""
        new, rng = self.plan.new, self.rng
        chance = rng.random()
        if chance < 0.35:
            return self._names(new, attach=False)
        if len(new) > 1:
            text = rng.choice(("they", "both", "the two", "the other two", "the two of them", "everyone", "the others"))
            return Reference(text, "them" if text == "they" else text, text != "everyone", "their", "themselves")
        pronoun = self.pronouns[new[0]]
        if chance < 0.8:
            return from_pronoun(pronoun)
        text = rng.choice(
            ("the other one", "the other one", "the other", "the one who left", "the missing one", "the one before",
             "the first one", "the friend", "the one that went away", "the other character", "the last one")
        )  # fmt: skip
        return Reference(text, text, False, *from_pronoun(pronoun).possessive_and_reflexive)

    def _one_of_two(self, name: str) -> Reference:
        """One of the pair, by a pronoun if unambiguous."""
        pronouns = [self.pronouns[other] for other in self.after.characters]
        if len(set(pronouns)) == 2 and "they" not in pronouns and self.rng.random() < 0.5:
            return from_pronoun(self.pronouns[name])
        return self._names((name,), attach=False)

    def _told_apart(self) -> bool:
        """Whether one of two leaves and pronouns are unambiguous: she leaves, he stays."""
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
        if slot in ("b", "bo", "bpos"):
            if self.back is None:
                self.back = self._returning()
            back = self._set(self.back)
            return {"b": back.subject, "bo": back.object, "bpos": back.possessive}[slot]
        if slot in ("a", "c"):
            name = self.after.characters[0 if slot == "a" else -1]
            return self._set(self._one_of_two(name)).subject
        if slot == "a.pro":
            return self._set(from_pronoun(self.pronouns[rng.choice(self.after.characters)])).subject
        if slot in ("k.pro", "k.o"):
            reference = self._set(from_pronoun(self.pronouns[stay[0]]))
            return reference.subject if slot == "k.pro" else reference.object
        if slot in ("other", "otherpos", "other.pro"):
            name = next(name for name in self.after.characters if name not in self.wearers)
            if slot == "other":
                return self._names((name,), attach=False).subject
            other = self._set(from_pronoun(self.pronouns[name]))
            return other.possessive if slot == "otherpos" else other.subject
        if slot == "s.pro":
            return self._set(self._who_pronoun()).subject
        if slot == "all":
            return self._set(self._both() if self.after.is_pair else self._who_pronoun()).subject
        if slot == "all.n":
            return self._set(self._both() if self.after.is_pair else self._who_pronoun()).subject
        if slot == "all.o":
            return self._who_pronoun().object
        if slot == "n.worn":
            return self._worn_by(plan.new[0])
        if slot == "n.dg":
            worn = self.after.outfits[self.after.characters.index(plan.new[0])]
            return self._garment(rng.choice([other for other in OUTFITS if other not in (worn, "everyday")]), plan.new)
        if slot in ("n", "N"):
            reference = self._set(self._names(plan.new or self.after.characters, attach and slot == "n", genitive))
            return reference.subject.upper() if slot == "N" else reference.subject
        if slot == "n.pro":
            return self._set(from_pronoun(self.pronouns[plan.new[0]])).subject
        if slot == "x" and self._told_apart() and rng.random() < _PRONOUN_LEAVES:
            return self._set(from_pronoun(self.pronouns[plan.left[0]])).subject
        if slot in ("k", "k.n") and plan.kind == "leave" and self._told_apart() and rng.random() < _PRONOUN_LEAVES:
            return self._set(from_pronoun(self.pronouns[stay[0]])).subject
        if slot == "x" and self.voice.name == "gamer" and len(plan.left) == 1 and self.before and rng.random() < 0.15:
            number = self.before.characters.index(plan.left[0]) + 1
            return self._set(Reference(f"{rng.choice(('p', 'player '))}{number}", "", False, "", "")).subject
        if slot in ("x", "X", "p"):
            people = self.before.characters if slot == "p" and self.before else plan.left
            text = self._set(self._names(people, attach=False)).subject
            return text.upper() if slot == "X" else text
        if slot in ("xpos", "ppos"):
            people = self.before.characters if slot == "ppos" and self.before else plan.left
            return self._names(people, genitive=True).genitive
        if slot == "xpos.s":
            return from_pronoun(self.pronouns[plan.left[0]]).possessive if len(plan.left) == 1 else "their"
        if slot in ("x.pro", "x.pro.o"):
            reference = from_pronoun(self.pronouns[plan.left[0]] if len(plan.left) == 1 else "they")
            return reference.object if slot == "x.pro.o" else self._set(reference).subject
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
