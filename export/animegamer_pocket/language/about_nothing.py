"""Sentence classes that ask for nothing new: undo, "leave it", things that pocket lacks, small talk, stray words."""

from __future__ import annotations

import random
import re

from animegamer_pocket.world.scene import CHARACTERS

from .filling import Filling
from .lexicon import load
from .story import Asked, Classes, Story

_LETTERS = "aaabcdeeefghiijklmnooprsttuuvwxyzqjxz"


def _undo(story: Story, template: str) -> Asked | None:
    return Asked(Filling(), back=story.earlier or story.before, notes=("undo",))


def _keeps(story: Story, template: str) -> Asked | None:
    return Asked(Filling())


def _thing(story: Story, template: str) -> Asked | None:
    thing = load("stray")["thing"].text(story.rng)
    fill = Filling({"a": story.rng.choice(story.shown)}, phrases={"x": lambda: thing})
    return Asked(fill, unknown=(thing,))


def _small_talk(story: Story, template: str) -> Asked | None:
    rng, stray = story.rng, load("stray")

    def noun() -> str:
        return stray["words" if rng.random() < 0.5 else "thing"].text(rng)

    def deed() -> str:
        return stray["deed"].text(rng)

    def base() -> str:
        first, _, rest = deed().partition(" ")
        return re.sub(r"(ss|sh|ch|x|z)es$|([^aeiou])ies$|s$", lambda m: m[1] or (f"{m[2]}y" if m[2] else ""), first) + (
            f" {rest}" if rest else ""
        )

    fill = Filling(phrases={"noun": noun, "deed": deed, "base": base})
    if story.before is not None:
        return Asked(fill, notes=("nothing",))
    return Asked(fill, (rng.choice(CHARACTERS),), "stand", notes=("nothing",), without=("who",))


def _chatter(story: Story, template: str) -> Asked | None:
    rng, stray = story.rng, load("stray")
    kind = rng.choice(("words", "words", "chatter", "chatter", "chatter", "code", "foreign", "foreign", "letters"))
    said: list[str] = []

    def one() -> str:
        text = gibberish(rng) if kind == "letters" else stray[kind].text(rng)
        if kind == "foreign" and rng.random() < 0.4 and story.before is not None:
            name = rng.choice(CHARACTERS if rng.random() < 0.3 else story.shown)
            return f"{name} {text}"
        said.append(text)
        return text

    fill = Filling(phrases={"x": one})
    if story.before is not None:
        asked = Asked(fill, notes=("nothing",))
    else:
        asked = Asked(fill, (rng.choice(CHARACTERS),), "stand", notes=("nothing",), without=("who",))
    if kind != "chatter":
        asked.unknown = tuple(stray[kind].texts) if kind != "letters" else ()
    return asked


def gibberish(rng: random.Random) -> str:
    """A few random letters, sometimes of a keyboard's row."""
    if rng.random() < 0.3:
        row = rng.choice(("qwertyuiop", "asdfghjkl", "zxcvbnm"))
        start = rng.randrange(len(row) - 3)
        return (row[start : start + rng.randint(3, 8)]) * rng.randint(1, 2)
    words = ["".join(rng.choice(_LETTERS) for _ in range(rng.randint(3, 10))) for _ in range(rng.randint(1, 3))]
    return " ".join(words)


CLASSES: Classes = {
    "undo": (4, "later", _undo),
    "chatter": (8, "any", _chatter),
    "small_talk": (6, "any", _small_talk),
    "thing": (4, "later", _thing),
    "keeps": (1.5, "later", _keeps),
}
