"""One utterance under construction: state shared by the slots."""

from __future__ import annotations

import dataclasses
import random

from animegamer_pocket.world.scene import Scene

from .lexicon import Phrase, load
from .plan import Plan
from .references import Reference, from_pronoun, pronoun_of
from .voices import Voice


@dataclasses.dataclass(frozen=True, slots=True)
class Override:
    """Words unknown to pocket, used instead of the scene's motion or place."""

    motion: Phrase | None = None
    place: str = ""


class State:
    """`pending` and `said`: the fields to state and stated. `level_known`: the text determines the level.

    `apart`: the frame names a newcomer separately, so that clothes after the name are its own. `early`: the sentence
    comes before the one that says who is present.
    """

    def __init__(
        self, rng: random.Random, before: Scene | None, after: Scene, voice: Voice, plan: Plan, override: Override
    ) -> None:
        self.rng, self.before, self.after, self.voice, self.plan = rng, before, after, voice, plan
        self.night = "night" if after.night else "day"
        self.override = override
        self.said: set[str] = set()
        self.level_known = True
        self.pending = set(plan.said)
        self.clothes = dict(plan.outfits)
        self.pronouns = {name: pronoun_of(rng, name) for name in (*after.characters, *plan.left)}
        self.plural = after.is_pair
        self.subject: Reference | None = None
        self.back: Reference | None = None
        self.wearers: tuple[str, ...] = after.characters
        self.attaching = True
        self.apart = self.early = False
        self.introduced = plan.kind == "keep"
        self.repeats = False
        self.in_main = False
        self.vp = Phrase("")
        self.old_vp = load("motions")[before.motion].pick(rng, self._fits_old).text if before else ""

    def _fits_old(self, phrase: Phrase) -> bool:
        assert self.before is not None
        return not phrase.hour and not phrase.strength and phrase.count in (0, len(self.before.characters))

    def _done(self, field: str) -> None:
        self.pending.discard(field)
        self.said.add(field)

    def _one_group(self) -> bool:
        """Whether everybody in the scene gets the same clothes, so that one garment serves all."""
        return len(self.clothes) == len(self.after.characters) and len(set(self.clothes.values())) == 1

    def _who_pronoun(self) -> Reference:
        if self.after.is_pair:
            return Reference("they", "them", True, "their", "themselves")
        return from_pronoun(self.pronouns[self.after.characters[0]])

    def _old_outfit(self) -> str:
        """What the wearers wore the turn before, or "" if unknown or different."""
        if self.before is None:
            return ""
        worn = dict(zip(self.before.characters, self.before.outfits, strict=True))
        old = {worn.get(name, "") for name in self.wearers}
        return old.pop() if len(old) == 1 else ""
