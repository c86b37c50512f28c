"""Whether a frame fits a turn, by its tags and the slots that the turn can fill."""

from __future__ import annotations

from .frames import Frame
from .state import State

NEEDS = {
    "loc": "place", "np": "place", "NP": "place", "to": "place", "pid": "place", "goto": "place", "gotob": "place",
    "gotop": "place", "seen": "place", "when": "night", "when.n": "night", "hour": "night", "hour.c": "night",
    "HOUR": "night", "hid": "night", "falls": "night", "falls.l": "night", "hour.w": "night", "worn": "outfits",
    "g": "outfits", "np.b": "place", "g.b": "outfits", "gid": "outfits", "don": "outfits", "donb": "outfits",
    "donv": "outfits", "dloc": "place", "dg": "outfits",
}  # fmt: skip
"""What a slot expresses. A main frame with such a slot fits only if the plan expresses that."""


_OTHER_MOTIONS = frozenset(("noun", "noun.b", "mo", "mid", "wing", "wb", "w", "ding", "db"))
"""Slots that need the word of a known motion."""


class Fitting(State):
    """Checks frames against the plan of a turn."""

    def _fits(self, frame: Frame) -> bool:
        tags, slots = frame.tags, frame.slots
        after, before = self.after, self.before
        if ("pair" in tags and not after.is_pair) or ("one" in tags and after.is_pair):
            return False
        if ("day" in tags and after.night) or ("night" in tags and not after.night):
            return False
        if tags & {"day", "night"} and "night" not in self.pending:
            return False
        if ("indoors" in tags and after.place != "room") or ("outdoors" in tags and after.place == "room"):
            return False
        if "SCENE" in slots and not {"place", "night"} <= self.pending:
            return False
        if self.override.motion is not None and slots & _OTHER_MOTIONS:
            return False
        if self.override.place and slots & {"dloc", "seen", "pid", "np.b", "oldnp", "oldnp.b", "oldloc", "NP", "SCENE"}:
            return False
        needed = {NEEDS[slot] for slot in slots if slot in NEEDS}
        if not needed <= self.pending:
            return False
        if "outfits" in needed and not self._one_group():
            return False
        if slots & {"other", "otherpos", "other.pro"} and (not after.is_pair or len(self.wearers) > 1):
            return False
        if slots & {"a", "c", "a.pro"} and not after.is_pair:
            return False
        if "a.pro" in slots and {self.pronouns[name] for name in after.characters} != {"he", "she"}:
            return False
        if "n.dg" in slots and (len(self.plan.new) != 1 or "outfits" in self.pending):
            return False
        if "n.worn" in slots and (len(self.plan.new) != 1 or self.plan.new[0] not in self.clothes):
            return False
        if slots & {"oldnp", "oldnp.b", "oldloc"} and (before is None or before.place == after.place):
            return False
        if "oldhour" in slots and (before is None or before.night == after.night):
            return False
        if slots & {"w", "wb", "wing", "mw", "mwid"} and (before is None or before.motion == after.motion):
            return False
        if "T" in slots and not self.pending & {"place", "night"}:
            return False
        if slots & {"p", "ppos", "p.id"} and len(self.plan.left) > 1 and self.rng.random() < 0.5:
            return False
        return not (slots & {"n.pro"} and len(self.plan.new) > 1)
