"""Sentence classes about motion, place, hour and clothes: corrected, denied, of each of two, missing or too many."""

from __future__ import annotations

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES

from .change import default_outfit
from .filling import Filling
from .story import HOURS, Asked, Class, Classes, Story, actor, two


def _fix_motion(story: Story, template: str) -> Asked | None:
    a, people = actor(story)
    m, w = two(story.rng, MOTIONS)
    if story.before is None and "{a" not in template:
        return None
    return Asked(Filling({"a": a}, {"m": m, "w": w}), people, m)


def _fix_place(story: Story, template: str) -> Asked | None:
    a, people = actor(story)
    p, q = two(story.rng, PLACES)
    if story.before is None and "{a" not in template:
        return None
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"a": a}, {"m": motion or ""}, {"p": p, "q": q}), people, motion, place=p)


def _fix_hour(story: Story, template: str) -> Asked | None:
    a, people = actor(story)
    h, i = two(story.rng, HOURS)
    if story.before is None and "{a" not in template:
        return None
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"a": a}, {"m": motion or ""}, hours={"h": h, "i": i}), people, motion, hour=h)


def _fix_clothes(story: Story, template: str) -> Asked | None:
    a = story.rng.choice(story.shown)
    g, k = two(story.rng, OUTFITS)
    return Asked(Filling({"a": a}, clothes={"g": (g, "a"), "k": (k, "a")}), clothes={a: g})


def _stop(story: Story, template: str) -> Asked | None:
    w = story.motion
    if "{w" in template and (w == "stand" or story.rng.random() < 0.22):
        w = story.rng.choice([motion for motion in MOTIONS if motion not in (w, "stand")])
        return Asked(Filling({"a": story.rng.choice(story.shown)}, {"w": w}))
    return Asked(Filling({"a": story.rng.choice(story.shown)}, {"w": w}), motion="stand")


def _not_motion_first(story: Story, template: str) -> Asked | None:
    a = story.rng.choice(CHARACTERS)
    w = story.rng.choice([motion for motion in MOTIONS if motion != "stand"])
    return Asked(Filling({"a": a}, {"w": w}), (a,), "stand", notes=("no_motion",))


def _not_place(story: Story, template: str) -> Asked | None:
    q = story.place
    fill = Filling({"a": story.rng.choice(story.shown)}, places={"q": q})
    if "{q" in template and story.rng.random() < 0.2:
        fill.places = {"q": story.rng.choice([place for place in PLACES if place != q])}
        return Asked(fill)
    return Asked(fill, place="forest" if q == "meadow" else "meadow")


def _not_hour(story: Story, template: str) -> Asked | None:
    i = story.hour if story.rng.random() < 0.7 else HOURS[story.hour == "day"]
    return Asked(Filling(hours={"i": i}), hour=HOURS[i == "day"])


def _not_hour_acts(story: Story, template: str) -> Asked | None:
    a, people = actor(story)
    i, motion = story.rng.choice(("night", "night", "day")), story.rng.choice(MOTIONS)
    p = story.rng.choice(PLACES) if "{p" in template else None
    return Asked(
        Filling({"a": a}, {"m": motion}, {"p": p or ""}, {"i": i}), people, motion, place=p, hour=HOURS[i == "day"]
    )


def _not_clothes(story: Story, template: str) -> Asked | None:
    a = story.rng.choice(story.shown)
    k = default_outfit(a, story.before, story.worn)
    if k == "everyday" or story.rng.random() < 0.25:
        k = story.rng.choice([outfit for outfit in OUTFITS if outfit not in (k, "everyday")])
        return Asked(Filling({"a": a}, clothes={"k": (k, "a")}))
    return Asked(Filling({"a": a}, clothes={"k": (k, "a")}), clothes={a: "everyday"})


def _two_outfits(story: Story, template: str) -> Asked | None:
    rng = story.rng
    motion = rng.choice(MOTIONS) if "{m" in template else None
    if len(story.shown) == 2:
        a, b = story.shown if template.startswith("one ") else rng.sample(story.shown, 2)
    elif motion and story.before is None:
        a, b = two(rng, CHARACTERS)
    else:
        return None
    g, k = two(rng, OUTFITS)
    fill = Filling({"a": a, "b": b}, {"m": motion or ""}, clothes={"g": (g, "a"), "k": (k, "b")})
    return Asked(fill, (a, b), motion, clothes={a: g, b: k})


def _one_dressed(story: Story, template: str) -> Asked | None:
    a, b = story.rng.sample(story.shown, 2)
    g = story.rng.choice(OUTFITS)
    return Asked(Filling({"a": a, "b": b}, clothes={"g": (g, "a")}), clothes={a: g})


def _swap_clothes(story: Story, template: str) -> Asked | None:
    (a, g), (b, k) = story.clothes.items()
    if g == k and story.rng.random() < 0.8:
        return None
    return Asked(Filling({"a": a, "b": b}), clothes={a: k, b: g})


def _first_only(story: Story, template: str) -> Asked | None:
    a, b = two(story.rng, CHARACTERS)
    g = story.rng.choice(OUTFITS)
    people = (a, b) if "{b}" in template else (a,)
    clothes = {a: g} if "{g" in template else {}
    return Asked(
        Filling({"a": a, "b": b}, clothes={"g": (g, "a")}), people, "stand", clothes=clothes, notes=("no_motion",)
    )


def _two_motions(story: Story, template: str) -> Asked | None:
    m, w = two(story.rng, MOTIONS)
    if "{b" in template or template.startswith("one "):
        if len(story.shown) == 2:
            a, b = story.rng.sample(story.shown, 2)
        elif story.before is None and "{b" in template:
            a, b = two(story.rng, CHARACTERS)
        else:
            return None
        return Asked(Filling({"a": a, "b": b}, {"m": m, "w": w}), (a, b), m, notes=("second_motion",))
    a, people = actor(story)
    if story.before is None and "{a" not in template:
        return None
    return Asked(Filling({"a": a}, {"m": m, "w": w}), people, m, notes=("second_motion",))


def _alike(story: Story, template: str) -> Asked | None:
    """One more gets the clothes that another has on."""
    worn = story.clothes
    dressed = [name for name in story.shown if worn[name] != "everyday"]
    if len(dressed) != 1:
        return None
    b = dressed[0]
    if "{c}" in template:
        if len(story.shown) == 2:
            return None
        c = story.absent[0]
        return Asked(Filling({"b": b, "c": c}), (b, c), clothes={c: worn[b]})
    if len(story.shown) < 2:
        return None
    a = next(name for name in story.shown if name != b)
    return Asked(Filling({"a": a, "b": b}), clothes={a: worn[b]})


def _own_off(story: Story, template: str) -> Asked | None:
    worn = story.clothes
    dressed = [name for name in story.shown if worn[name] != "everyday"]
    if not dressed or (len(dressed) > 1 and "{a" not in template):
        return None
    a = story.rng.choice(dressed)
    return Asked(Filling({"a": a}), clothes={a: "everyday"})


def _affirms(story: Story, template: str) -> Asked | None:
    """What is shown already."""
    if len(story.shown) == 2 and template in ("{a}", "{a} stays", "{a} stays here"):
        return None
    people = dict(zip("ab", story.rng.sample(story.shown, len(story.shown)), strict=False))
    a = people["a"]
    g = default_outfit(a, story.before, story.worn)
    clothes = {"g": (g, "a")}
    fill = Filling(people, {"m": story.motion}, {"p": story.place}, {"h": story.hour}, clothes)
    return Asked(fill, motion=story.motion if "{m" in template else None, level=story.level)


def _strength(level: int, motion: str | None = None) -> Class:
    def asked(story: Story, template: str) -> Asked | None:
        a, people = actor(story)
        if story.before is None and "{a" not in template:
            return None
        m = motion or story.rng.choice(("walk", "run", "jump", "wave", "dance", "fly", "bow"))
        return Asked(Filling({"a": a}, {"m": m}), people, m, level=level)

    return asked


CLASSES: Classes = {
    "fix_motion": (3.5, "any", _fix_motion),
    "fix_motion_bare": (3, "any", _fix_motion),
    "fix_place": (2, "any", _fix_place),
    "fix_place_bare": (3, "any", _fix_place),
    "fix_hour": (2, "any", _fix_hour),
    "fix_hour_bare": (2, "any", _fix_hour),
    "fix_clothes": (4, "later", _fix_clothes),
    "stop": (9, "later", _stop),
    "not_motion_first": (2, "first", _not_motion_first),
    "not_place": (5, "later", _not_place),
    "not_hour": (3, "later", _not_hour),
    "not_hour_acts": (2.5, "any", _not_hour_acts),
    "not_clothes": (2, "later", _not_clothes),
    "two_outfits": (6, "any", _two_outfits),
    "two_outfits_act": (3, "any", _two_outfits),
    "one_dressed": (6, "pair", _one_dressed),
    "swap_clothes": (3, "pair", _swap_clothes),
    "first_only": (12, "first", _first_only),
    "two_motions": (5, "any", _two_motions),
    "two_in_a_row": (3, "any", _two_motions),
    "strong": (2, "any", _strength(5)),
    "high": (1, "any", _strength(5, "jump")),
    "weak": (2, "any", _strength(1)),
    "alike": (4, "later", _alike),
    "joins_alike": (3, "later", _alike),
    "affirms": (5, "later", _affirms),
    "own_off": (3, "later", _own_off),
}
