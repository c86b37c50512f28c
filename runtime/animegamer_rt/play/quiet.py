"""What happens in a live game while nobody types: the same rules as the page's (client/web/words.js)."""

from __future__ import annotations

import random
import re

from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.state.game import HOURS

CHANGES = 0.2
"""Share of the quiet turns in which more than the motion changes."""
CALM_MANNERS = 3


class QuietWords:
    """Makes up instructions from the words that a bundle's reader knows. The same seed gives the same ones."""

    def __init__(self, words: ReaderWords, seed: int) -> None:
        self._words, self._random = words, random.Random(seed)

    def instruction(self, first: bool) -> str:
        """Another motion, now and then somebody else, somewhere else or another hour. first: nobody is shown yet."""
        words, any_of = self._words, self._random.choice
        changed = any_of(("who", "place", "hour")) if self._random.random() < CHANGES else None
        who = any_of(words.people) if first or changed == "who" else None
        place = any_of(words.places) if first or changed == "place" else None
        motion = any_of(words.motions)
        parts = [
            f"{who} {_third_person(motion)}" if who else f"Now {motion}",
            any_of(words.manners[:CALM_MANNERS]),
            f"{'at' if place == 'beach' else 'in'} the {place}" if place else "",
            {"day": "by day", "night": "at night"}[any_of(HOURS)] if changed == "hour" and not first else "",
        ]
        return " ".join(part for part in parts if part) + "."


def _third_person(motion: str) -> str:
    verb, *rest = motion.split(" ")
    if re.search("[^aeiou]y$", verb):
        verb = verb[:-1] + "ies"
    else:
        verb += "es" if re.search("(s|x|z|ch|sh|o)$", verb) else "s"
    return " ".join([verb, *rest])
