"""Places and hours, and the slots they fill."""

from __future__ import annotations

import re

from animegamer_pocket.world.scene import PLACES

from . import inflect
from .lexicon import Phrase, load
from .state import State
from .text import cap, lower

_MOVING = re.compile("(through|across|over|around|about|past|up and down|down the|atop|above) ")
_SUNNY = re.compile("sunny|shade|blazing|sunlit|sparkles|Bees|Butterflies|Heat|desert heat|heat of", re.ASCII)
_SHARED_SAND = re.compile(r"\bsands?\b|\bsandy\b")
_BARE_PLACES = frozenset(("home", "indoors", "inside", "downtown"))


class Scenery(State):
    """Where and when."""

    def _scene_slot(self, slot: str) -> str | None:
        rng, after, before = self.rng, self.after, self.before
        places, hours = load("places"), load("hours")
        if slot == "loc":
            return self._place_at()
        if slot == "dloc":
            other = rng.choice([place for place in PLACES if place not in self._shared_places()])
            return re.sub(r"\b(his|her|their) room", "the room", places[f"{other} at"].text(rng))
        if slot == "np.b":
            return re.sub("^(the|a) ", "", places[after.place].pick(rng, self._suits_hour).text)
        if slot in ("np", "NP"):
            text = self.override.place or places[after.place].pick(rng, self._suits_hour).text
            if slot == "NP":
                return re.sub("^THE ", "", text.upper())
            return {"indoors": "the house", "inside": "the house"}.get(text, text)
        if slot == "to":
            return self._to(after.place)
        if slot == "pid":
            return rng.choice((after.place, after.place, re.sub("^(the|a) ", "", places[after.place].text(rng))))
        if slot in ("goto", "gotob", "gotop"):
            return self._goto(slot, moving=self.in_main and not self.repeats)
        if slot == "seen":
            return places[f"{after.place} seen"].pick(rng, self._suits_hour).text
        if slot in ("oldnp", "oldnp.b"):
            assert before is not None
            text = places[before.place].text(rng)
            if slot == "oldnp.b":
                return re.sub("^(the|a) ", "", text)
            return {"indoors": "the house", "inside": "the house"}.get(text, text)
        if slot == "oldloc":
            assert before is not None
            return places[f"{before.place} at"].text(rng).replace("(his|her|their)", "their")
        if slot == "SCENE":
            self._done("place")
            self._done("night")
            name = re.sub("^(the|a) ", "", places[after.place].text(rng)).upper()
            return f"{'INT' if after.place == 'room' else 'EXT'}. {name} - {self.night.upper()}. "
        if slot in ("when", "when.n"):
            return hours[f"{self.night} at"].text(rng) if slot == "when" else self._hour()
        if slot in ("hour", "hour.w"):
            return self._hour()
        if slot in ("hour.c", "HOUR"):
            return cap(self._hour()) if slot == "hour.c" else self._hour().upper()
        if slot == "hid":
            return (
                self.night
                if rng.random() < 0.8
                else rng.choice(("midnight", "evening") if after.night else ("noon", "morning"))
            )
        if slot == "oldhour":
            return "day" if after.night else "night"
        if slot in ("falls", "falls.l"):
            text = hours[f"{self.night} falls"].text(rng)
            return text if slot == "falls" else lower(text)
        return None

    def _shared_places(self) -> tuple[str, ...]:
        """The scene's place and the one that shares its things, such as sand."""
        place = self.after.place
        return ("beach", "desert") if place in ("beach", "desert") else (place,)

    def _hour(self) -> str:
        return load("hours")[self.night].text(self.rng)

    def _place_at(self, still: bool = True) -> str:
        """Where it happens. still: not "through" or "across", which need a travelling motion."""
        if self.override.place:
            return f"{_preposition(self.override.place)} {self.override.place}"
        text = (
            load("places")[f"{self.after.place} at"]
            .pick(self.rng, lambda phrase: self._suits_hour(phrase) and not (still and _MOVING.match(phrase.text)))
            .text
        )
        return re.sub(r"\b(his|her|their) room", f"{self._who_pronoun().possessive} room", text)

    def _suits_hour(self, phrase: Phrase) -> bool:
        before = self.before
        if before is not None and {before.place, self.after.place} == {"beach", "desert"}:
            if _SHARED_SAND.search(phrase.text):
                return False
        return not (self.after.night and _SUNNY.search(phrase.text))

    def _to(self, place: str) -> str:
        if self.override.place:
            return f"to {self.override.place}"
        text = load("places")[place].pick(self.rng, self._suits_hour).text
        return text if text in _BARE_PLACES else f"to {text}"

    def _goto(self, slot: str, moving: bool) -> str:
        places = load("places")
        pronoun = self._who_pronoun()
        chance = self.rng.random()
        if chance < 0.2 and moving:
            phrase = f"{places['move'].text(self.rng)} {self._to(self.after.place)}"
        elif chance < 0.65:
            phrase = f"{places['go'].text(self.rng)} {self._to(self.after.place)}"
        else:
            phrase = self._reach(places["reach"].text(self.rng))
        phrase = phrase.replace("{pos}", pronoun.possessive).replace("{self}", pronoun.reflexive)
        if slot == "gotob":
            return phrase
        if slot == "gotop" or self.voice.past:
            past = inflect.past(phrase)
            return past.replace("was ", "were ", 1) if self.plural else past
        if self.plural:
            return "are" + phrase[2:] if phrase.startswith("be ") else phrase
        return inflect.third_person(phrase)

    def _reach(self, verb: str) -> str:
        """The verb with the place as its object or with a preposition: "visits the beach", "ends up on the beach"."""
        if verb.endswith(" in"):
            return f"{verb.removesuffix(' in')} {self._place_at()}"
        if self.override.place:
            return f"{verb} {self.override.place}"
        phrases = load("places")[self.after.place]
        fitting = phrases.pick(self.rng, lambda phrase: phrase.text not in _BARE_PLACES and self._suits_hour(phrase))
        return f"{verb} {fitting.text}"


_ON = "moon|Mars|island|ship|bridge|planet|Everest|course|pitch|playground|Olympus|top of"
_IN = (
    "garden|vineyard|swamp|treehouse|grove|orchard|lake|pool|river|castle|classroom|kitchen|library|cave|museum|office|"
    "tavern|dungeon|spaceship|prison|attic|west|canyon|volcano|Alps|igloo|space|village|market|mall|matrix|dimension|past|"
    "inside|stars"
)


def _preposition(place: str) -> str:
    """In, on or at, for a place that pocket does not know."""
    if re.search(_ON, place):
        return "on"
    return "in" if re.search(_IN, place) or not place.startswith(("the ", "a ", "an ")) else "at"
