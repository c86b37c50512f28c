"""Sentence classes about people: who acts on whom, who is named by mistake, denied, excepted, absent or too many."""

from __future__ import annotations

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS

from . import inflect
from .filling import Filling
from .lexicon import load
from .story import Asked, Classes, Story, actor, two


def _to(story: Story, template: str) -> Asked | None:
    rng = story.rng
    if len(story.shown) == 2:
        a, b = rng.sample(story.shown, 2)
    elif "{b" not in template:
        return None
    elif story.before is None:
        a, b = two(rng, CHARACTERS)
    else:
        a, b = rng.sample([story.shown[0], story.absent[0]], 2)
    odd = rng.random() < 0.3
    motion = rng.choice(("walk", "run", "sit", "stand", "stand", "dance", "none") if odd else MOTIONS)
    verb = load("stray")[f"{'odd' if odd else 'to'} {motion}"].text(rng)
    forms = {"v": inflect.third_person(verb), "b": verb, "ing": inflect.ing(verb)}
    form = next((form for form in forms if f"{{to.{form}}}" in template), "v")
    fill = Filling({"a": a, "b": b}, phrases={"to": lambda: forms[form]})
    notes = () if not odd else ("substitute",) if motion != "none" else ()
    if odd and motion == "none" and story.before is None:
        notes = ("no_motion",)
    asked = Asked(fill, (a, b), None if motion == "none" else motion, notes=notes)
    if odd:
        asked.unknown = (forms[form],)
        asked.without = ("level",)
    return asked


def _company(story: Story, template: str) -> Asked | None:
    rng, motion = story.rng, story.rng.choice(MOTIONS)
    if story.before is None:
        a, b = two(rng, CHARACTERS)
    elif len(story.shown) == 2:
        a, b = rng.sample(story.shown, 2)
    else:
        a, b = rng.sample([story.shown[0], story.absent[0]], 2)
    return Asked(Filling({"a": a, "b": b}, {"m": motion}), (a, b), motion)


def _company_unknown(story: Story, template: str) -> Asked | None:
    a, people = actor(story)
    motion, strangers = story.rng.choice(MOTIONS), load("unknown_people")
    stranger = strangers[story.rng.choice(tuple(strangers))].text(story.rng)
    fill = Filling({"a": a}, {"m": motion}, phrases={"x": lambda: stranger})
    return Asked(fill, people, motion, unknown=(stranger,))


def _one_acts(story: Story, template: str) -> Asked | None:
    rng = story.rng
    motion = rng.choice(MOTIONS)
    if len(story.shown) == 2:
        a, b = rng.sample(story.shown, 2)
        return Asked(Filling({"a": a, "b": b}, {"m": motion}), None, motion)
    if len(story.shown) == 1 and "{b" not in template and rng.random() < 0.3:
        a = story.absent[0]
        return Asked(Filling({"a": a}, {"m": motion}), (story.shown[0], a), motion)
    return None


def _third_acts(story: Story, template: str) -> Asked | None:
    a, b = story.rng.sample(story.shown, 2)
    c = story.absent[0]
    fill = Filling({"a": a, "b": b, "c": c}, {"m": story.rng.choice(MOTIONS)})
    return Asked(fill, refused=(c,))


def _fix_first(story: Story, template: str) -> Asked | None:
    rng, motion = story.rng, story.rng.choice(MOTIONS)
    a, b = two(rng, CHARACTERS)
    if story.before is not None:
        if len(story.shown) == 2:
            return None
        a, b = story.shown[0], story.absent[0]
    return Asked(Filling({"a": a, "b": b}, {"m": motion}), (b,), motion)


def _fix_pair(story: Story, template: str) -> Asked | None:
    rng, motion = story.rng, story.rng.choice(MOTIONS)
    if len(story.shown) == 2:
        return None
    a, b, x = rng.sample(CHARACTERS, 3)
    if story.before is not None:
        a, (b, x) = story.shown[0], story.absent[:2]
    return Asked(Filling({"a": a, "b": b, "x": x}, {"m": motion}), (a, b), motion)


def _fix_join(story: Story, template: str) -> Asked | None:
    c, (b, x) = story.shown[0], story.absent[:2]
    return Asked(Filling({"c": c, "b": b, "x": x}), (c, b))


def _fix_swap(story: Story, template: str) -> Asked | None:
    c, (b, x) = story.shown[0], story.absent[:2]
    return Asked(Filling({"c": c, "b": b, "x": x}), (b,))


def _fix_leave(story: Story, template: str) -> Asked | None:
    a, b = story.rng.sample(story.shown, 2)
    return Asked(Filling({"a": a, "b": b}), (a,))


def _but(story: Story, template: str) -> Asked | None:
    x, stays = story.rng.sample(story.shown, 2)
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"x": x}, {"m": motion or ""}), (stays,), motion)


def _but_leaves(story: Story, template: str) -> Asked | None:
    a = story.rng.choice(story.shown)
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"a": a}, {"m": motion or ""}), (a,), motion)


def _absent(story: Story, template: str) -> Asked | None:
    if len(story.shown) == 2 and template.startswith(("only {a}", "just {a}", "{a} alone")):
        return None
    return Asked(Filling({"a": story.rng.choice(story.shown), "c": story.absent[0]}))


def _absent_acts(story: Story, template: str) -> Asked | None:
    a, people = actor(story)
    if len(people) == 2 and ("only {a}" in template or "just {a}" in template):
        people = (a,)
    c = story.rng.choice([name for name in CHARACTERS if name not in people])
    if c in story.shown:
        return None
    motion = story.rng.choice(MOTIONS)
    return Asked(Filling({"a": a, "c": c}, {"m": motion}), people, motion)


def _said(story: Story, template: str) -> Asked | None:
    came = [name for name in story.shown if story.earlier is None or name not in story.earlier.characters]
    if len(story.shown) == 1:
        x = story.shown[0]
    elif len(came) == 1:
        x = came[0]
    else:
        return None
    b = story.absent[0]
    return Asked(Filling({"x": x, "b": b}), (*(name for name in story.shown if name != x), b))


def _wrong_person(story: Story, template: str) -> Asked | None:
    if story.earlier is None:
        return None
    came = [name for name in story.shown if name not in story.earlier.characters]
    if len(came) != 1:
        return None
    return Asked(Filling({"x": came[0]}), story.earlier.characters)


def _three_first(story: Story, template: str) -> Asked | None:
    if len(story.shown) == 2:
        return None
    a, b, c = story.rng.sample(CHARACTERS, 3)
    if story.before is not None:
        a, (b, c) = story.shown[0], story.absent[:2]
    motion = story.rng.choice(MOTIONS)
    return Asked(Filling({"a": a, "b": b, "c": c}, {"m": motion}), (a, b), motion, refused=(c,))


CLASSES: Classes = {
    "to": (9, "any", _to),
    "company": (6, "any", _company),
    "company_unknown": (2, "any", _company_unknown),
    "one_acts": (6, "any", _one_acts),
    "third_acts": (3, "pair", _third_acts),
    "fix_first": (6, "any", _fix_first),
    "fix_pair": (2, "any", _fix_pair),
    "fix_join": (4, "alone", _fix_join),
    "fix_swap": (2, "alone", _fix_swap),
    "fix_leave": (2.5, "pair", _fix_leave),
    "but": (4, "pair", _but),
    "but_acts": (3, "pair", _but),
    "but_leaves": (3, "pair", _but_leaves),
    "absent": (8, "later", _absent),
    "absent_acts": (4, "any", _absent_acts),
    "crowd": (2, "later", lambda story, template: Asked(Filling(), notes=("crowd",), without=("motion",))),
    "said": (4, "later", _said),
    "wrong_person": (2, "any", _wrong_person),
    "three_first": (2, "any", _three_first),
}
