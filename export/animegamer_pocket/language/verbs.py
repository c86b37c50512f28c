"""Verbs of the motions and adverbs of their level, and the slots they fill."""

from __future__ import annotations

import re

from animegamer_pocket.world.scene import MOTIONS

from . import inflect
from .lexicon import Phrase, load
from .state import State
from .text import cap

_MOTION_IDS = {"lie down": ("sleep", "liedown", "lie_down", "lie", "lie down", "nap"), "bow": ("bow",)}


class Verbs(State):
    """What they do, and how."""

    def _pick_motion(self) -> None:
        if self.override.motion is not None:
            self.vp = self.override.motion
            return
        level, speaks = self.after.level, "level" in self.pending and not self.repeats
        strength = 0
        if speaks and self.rng.random() < 0.3:
            strength = 1 if level >= 4 else -1 if level <= 2 else 0
        hour = self.night[0]
        self.vp = (
            load("motions")[self.after.motion].pick(
                self.rng,
                lambda phrase: (
                    phrase.strength == strength
                    and phrase.hour in ("", hour)
                    and phrase.count in (0, len(self.after.characters))
                ),
            )
            if not strength or any(p.strength == strength for p in load("motions")[self.after.motion].rest)
            else Phrase(self.after.motion)
        )

    def _verb(self, form: str) -> str:
        text = self._with_pronouns(self.vp.text)
        if form == "base":
            return inflect.base(text)
        manner = self._manner_before_verb() if form in ("finite", "ing") else ""
        if form == "ing":
            return manner + inflect.ing(text)
        if self.voice.past:
            verb = inflect.past(text)
            return manner + (verb.replace("was ", "were ", 1) if verb.startswith("was ") and self.plural else verb)
        if not self.plural:
            return manner + inflect.third_person(text)
        return manner + inflect.base("are" + text[2:] if text.startswith("be ") else text)

    def _manner_before_verb(self) -> str:
        if "level" not in self.pending or self.repeats or self.rng.random() > 0.25:
            return ""
        word = load("manners")[str(self.after.level)].text(self.rng)
        if not re.fullmatch(r"[a-z]+ly", word):
            return ""
        self._done("level")
        return word + " "

    def _with_pronouns(self, text: str) -> str:
        reference = self._who_pronoun()
        return text.replace("{pos}", reference.possessive).replace("{self}", reference.reflexive)

    def _motion_slot(self, slot: str) -> str | None:
        motion = self.after.motion
        if slot in ("v", "v1"):
            return self._verb("finite")
        if slot == "V1":
            return cap(self._verb("finite"))
        if slot == "v+":
            self.plural = True
            return self._verb("finite")
        if slot == "vb":
            return self._verb("base")
        if slot == "pv":
            return inflect.past(self._with_pronouns(self.vp.text))
        if slot == "ing":
            return self._verb("ing")
        if slot == "Ing":
            return cap(self._verb("ing"))
        if slot in ("ding", "db"):
            denied = self._with_pronouns(self._denied_motion())
            return inflect.ing(denied) if slot == "ding" else inflect.base(denied)
        if slot in ("noun", "noun.b"):
            noun = load("motion_nouns")[motion].text(self.rng)
            return re.sub(r"^(a|an|some) ", "", noun) if slot == "noun.b" else noun
        if slot == "mo":
            return "lie down" if motion == "lie down" and self.rng.random() < 0.6 else self._motion_word(motion)
        if slot == "mid":
            return self.rng.choice(_MOTION_IDS.get(motion, (motion,)))
        if slot in ("wb", "w", "wing", "mw", "mwid"):
            assert self.before is not None
            old = self.old_vp.replace("{pos}", "the").replace(" {self}", "")
            if slot == "wing":
                return inflect.ing(old)
            if slot == "w":
                return inflect.base(old) if self.plural else inflect.third_person(old)
            return inflect.base(old) if slot == "wb" else self._motion_word(self.before.motion)
        return None

    def _denied_motion(self) -> str:
        """A phrase of another motion, which the sentence negates."""
        other = self.rng.choice([motion for motion in MOTIONS if motion != self.after.motion])
        return load("motions")[other].pick(self.rng, lambda phrase: phrase.is_plain).text

    def _motion_word(self, motion: str) -> str:
        if motion == "lie down":
            return self.rng.choice(("sleep", "nap", "lie down"))
        return motion

    def _manner(self) -> str:
        text = load("manners")[str(self.after.level)].text(self.rng)
        self._done("level")
        return text.replace("{pos}", self._who_pronoun().possessive)

    def _manner_slot(self, slot: str) -> str | None:
        if slot in ("m", "m.c"):
            text = self._manner()
            return text if slot == "m" else cap(text)
        if slot == "lv":
            self._done("level")
            return str(self.after.level)
        return None
