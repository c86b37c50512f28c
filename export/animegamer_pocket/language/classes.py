"""Sentence classes: what players say that changes a scene otherwise than by naming its next state.

One does something to the other, a name or a motion taken back, a denial, an exception, somebody absent sent away, two
outfits, two motions, chatter, undo. A class has a section of templates in `templates/` (see `filling`) and a function
that says what the scene becomes. An eighth of the templates is held out from training and measures what it teaches.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, Scene, follow

from . import inflect
from .change import default_outfit, shows_the_same
from .filling import Filling, hour, place
from .lexicon import expand, load
from .noise import untidy
from .references import pronoun_of
from .sentences import Labels, Utterance, labels_of
from .text import cap

FOLDER = Path(__file__).parent / "templates"
_HELD_OUT = 8
_TAIL_SHARE, _TRIES = 0.35, 12
_LEADS = ("ok", "ok,", "well,", "please", "now", "hm,", "hey,", "and", "alright,", "wait,", "wait", "hold on,", "but")
_DENIES = frozenset(
    """absent absent_acts third_acts stop not_motion_first not_place not_hour not_clothes crowd chatter undo
    swap_clothes small_talk thing""".split()
)
"""Classes of which a sentence that changes nothing asks in vain."""
HOURS = ("day", "night")


@dataclasses.dataclass(frozen=True, slots=True)
class Story:
    """The game so far. earlier: the scene before `before`. worn: last outfits of the absent."""

    rng: random.Random
    before: Scene | None
    earlier: Scene | None
    worn: Mapping[str, str]

    @property
    def shown(self) -> tuple[str, ...]:
        """The characters of the last scene."""
        return self.before.characters if self.before else ()

    @property
    def absent(self) -> list[str]:
        """The others, in random order."""
        return self.rng.sample([name for name in CHARACTERS if name not in self.shown], 5 - len(self.shown))

    @property
    def hour(self) -> str:
        """day or night."""
        return HOURS[self.before.night] if self.before else "day"

    @property
    def place(self) -> str:
        """Where the last scene is; the meadow if there is none."""
        return self.before.place if self.before else "meadow"

    @property
    def motion(self) -> str:
        """The last scene's."""
        return self.before.motion if self.before else "stand"


@dataclasses.dataclass(slots=True)
class Asked:
    """What a sentence of a class asks for; what is None stays. `people` in the order in which they are named."""

    fill: Filling
    people: tuple[str, ...] | None = None
    motion: str | None = None
    place: str | None = None
    hour: str | None = None
    clothes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    level: int | None = None
    back: Scene | None = None
    """The scene that returns whole."""
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Labels that nothing determines."""


Class = Callable[[Story, str], "Asked | None"]


@functools.cache
def templates(section: str, held_out: bool = False) -> tuple[str, ...]:
    """The templates of a section, those to train on or the held-out eighth."""
    return _read()[section][held_out]


@functools.cache
def _read() -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    found: dict[str, tuple[list[str], list[str]]] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                section = found.setdefault(line[3:], ([], []))
            elif line and not line.startswith("# "):
                digest = hashlib.sha256(line.encode()).digest()[0]
                section[digest % _HELD_OUT == 0].extend(expand(line))
    return {name: (tuple(train), tuple(test or train)) for name, (train, test) in found.items()}


def class_turn(story: Story, held_out: bool = False, only: str | None = None) -> tuple[Scene, Utterance] | None:
    """The next scene and a sentence of a random class; None if the draw does not fit the game.

    only: of this class alone.
    """
    rng = story.rng
    name = only or rng.choices(tuple(CLASSES), [weight for weight, _ in CLASSES.values()])[0]
    for _ in range(_TRIES if only else 1):
        template = rng.choice(templates(name, held_out))
        if template.endswith(" @pair"):
            if name != "first_only" and len(story.shown) < 2:
                continue
            template = template.removesuffix(" @pair")
            pair = True
        else:
            pair = False
        asked = CLASSES[name][1](story, template)
        if asked is None or (name == "first_only" and pair != ("{b}" in template)):
            continue
        done = _turn(story, asked, name, template)
        if done is not None:
            return done
    return None


def _turn(story: Story, asked: Asked, name: str, template: str) -> tuple[Scene, Utterance] | None:
    rng, before = story.rng, story.before
    if not _fits_pronouns(story, asked.fill, template):
        return None
    _tails(story, asked, template)
    text = asked.fill.fill(rng, template)
    scene = _scene(story, asked)
    if scene is None:
        return None
    labels: Labels = {name: value for name, value in labels_of(scene).items() if name not in asked.without}
    if asked.motion and before is not None and before.motion == asked.motion and before.level != 3:
        labels.pop("level", None)
    if asked.unknown:
        labels["unknown"] = list(asked.unknown)
    notes = {*asked.notes, *(("goes_on",) if name not in _DENIES and shows_the_same(before, scene) else ())}
    return scene, Utterance(_finished(rng, text), labels, frozenset(), frozenset(notes), frozenset(asked.refused))


def _finished(rng: random.Random, text: str) -> str:
    if rng.random() < 0.06:
        text = f"{rng.choice(_LEADS)} {text}"
    text = cap(text) if rng.random() < 0.6 else text
    if text[-1:].isalnum():
        text += rng.choice(("", "", ".", ".", "!", "..."))
    return untidy(rng, text, 0.18) if rng.random() < 0.8 else text


def _scene(story: Story, asked: Asked) -> Scene | None:
    before = story.before
    if asked.back is not None and before is not None:
        return follow(before, asked.back)
    people = asked.people if asked.people is not None else story.shown
    if not people:
        return None
    if before is not None and set(people) == set(before.characters):
        people = before.characters
    outfits = tuple(asked.clothes.get(name, default_outfit(name, before, story.worn)) for name in people)
    level = asked.level or (3 if asked.motion or before is None else before.level)
    hour = asked.hour or story.hour
    motion = asked.motion or story.motion
    seed = story.rng.getrandbits(31)
    return follow(before, Scene(people, motion, level, asked.place or story.place, hour == "night", outfits, seed=seed))


def _fits_pronouns(story: Story, fill: Filling, template: str) -> bool:
    """Chooses the pronouns; whether those of the template are clear."""
    rng = story.rng
    for letter, name in fill.people.items():
        pronoun = pronoun_of(rng, name)
        while pronoun == "they":
            pronoun = pronoun_of(rng, name)
        fill.pronouns = {**fill.pronouns, letter: pronoun}
    used = [letter for letter in fill.people if f"{{{letter}." in template]
    for letter in used:
        if f"{{{letter}}}" not in template and fill.people[letter] not in story.shown:
            return False
        others = [other for other in story.shown if other != fill.people[letter]]
        if f"{{{letter}}}" not in template and others:
            kinds = {"Mirel": "she", "Dovan": "he"}
            if fill.pronouns[letter] == kinds.get(others[0], "") or (
                others[0] not in kinds and len(used) < 2 and not any(f"{{{o}}}" in template for o in fill.people)
            ):
                return False
    return len({fill.pronouns[letter] for letter in used}) == len(used)


def _tails(story: Story, asked: Asked, template: str) -> None:
    """What {t} and {T} say, and what that changes."""
    rng = story.rng
    must = "{T}" in template
    if not must and ("{t}" not in template or rng.random() > _TAIL_SHARE):
        asked.fill.phrases = {**asked.fill.phrases, "t": lambda: "", "T": lambda: ""}
        return
    parts = []
    if asked.place is None and (rng.random() < 0.75 or must):
        asked.place = rng.choice(PLACES)
        parts.append(place(rng, asked.place))
    if asked.hour is None and rng.random() < 0.35:
        asked.hour = rng.choice(HOURS)
        parts.append(hour(rng, asked.hour, "at"))
    rng.shuffle(parts)
    text = "".join(f" {part}" for part in parts)
    asked.fill.phrases = {**asked.fill.phrases, "t": lambda: text, "T": lambda: text}


def _two(rng: random.Random, values: Sequence[str]) -> tuple[str, str]:
    first, second = rng.sample(list(values), 2)
    return first, second


def _actor(story: Story) -> tuple[str, tuple[str, ...]]:
    """Somebody who is shown, or anybody in a first turn; and who is shown then."""
    if story.before is None:
        one = story.rng.choice(CHARACTERS)
        return one, (one,)
    return story.rng.choice(story.shown), story.shown


def _to(story: Story, template: str) -> Asked | None:
    rng = story.rng
    if len(story.shown) == 2:
        a, b = rng.sample(story.shown, 2)
    elif "{b" not in template:
        return None
    elif story.before is None:
        a, b = _two(rng, CHARACTERS)
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
    if len(story.shown) < 2:
        return None
    a, b = story.rng.sample(story.shown, 2)
    c = story.absent[0]
    fill = Filling({"a": a, "b": b, "c": c}, {"m": story.rng.choice(MOTIONS)})
    return Asked(fill, refused=(c,))


def _fix_first(story: Story, template: str) -> Asked | None:
    rng, motion = story.rng, story.rng.choice(MOTIONS)
    a, b = _two(rng, CHARACTERS)
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
    if len(story.shown) != 1:
        return None
    c, (b, x) = story.shown[0], story.absent[:2]
    return Asked(Filling({"c": c, "b": b, "x": x}), (c, b))


def _fix_swap(story: Story, template: str) -> Asked | None:
    if len(story.shown) != 1:
        return None
    c, (b, x) = story.shown[0], story.absent[:2]
    return Asked(Filling({"c": c, "b": b, "x": x}), (b,))


def _fix_leave(story: Story, template: str) -> Asked | None:
    if len(story.shown) != 2:
        return None
    a, b = story.rng.sample(story.shown, 2)
    return Asked(Filling({"a": a, "b": b}), (a,))


def _but(story: Story, template: str) -> Asked | None:
    if len(story.shown) != 2:
        return None
    x, stays = story.rng.sample(story.shown, 2)
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"x": x}, {"m": motion or ""}), (stays,), motion)


def _but_leaves(story: Story, template: str) -> Asked | None:
    if len(story.shown) != 2:
        return None
    a = story.rng.choice(story.shown)
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"a": a}, {"m": motion or ""}), (a,), motion)


def _absent(story: Story, template: str) -> Asked | None:
    if story.before is None or (len(story.shown) == 2 and template.startswith(("only {a}", "just {a}", "{a} alone"))):
        return None
    return Asked(Filling({"a": story.rng.choice(story.shown), "c": story.absent[0]}))


def _absent_acts(story: Story, template: str) -> Asked | None:
    a, people = _actor(story)
    if len(people) == 2 and ("only {a}" in template or "just {a}" in template):
        people = (a,)
    c = story.rng.choice([name for name in CHARACTERS if name not in people])
    if c in story.shown:
        return None
    motion = story.rng.choice(MOTIONS)
    return Asked(Filling({"a": a, "c": c}, {"m": motion}), people, motion)


def _crowd(story: Story, template: str) -> Asked | None:
    return None if story.before is None else Asked(Filling(), notes=("crowd",), without=("motion",))


def _said(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
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
    if story.before is None or story.earlier is None or set(story.shown) == set(story.earlier.characters):
        return None
    came = [name for name in story.shown if name not in story.earlier.characters]
    if len(came) != 1:
        return None
    return Asked(Filling({"x": came[0]}), story.earlier.characters)


def _undo(story: Story, template: str) -> Asked | None:
    return None if story.before is None else Asked(Filling(), back=story.earlier or story.before, notes=("undo",))


def _fix_motion(story: Story, template: str) -> Asked | None:
    a, people = _actor(story)
    m, w = _two(story.rng, MOTIONS)
    if story.before is None and "{a" not in template:
        return None
    return Asked(Filling({"a": a}, {"m": m, "w": w}), people, m)


def _fix_place(story: Story, template: str) -> Asked | None:
    a, people = _actor(story)
    p, q = _two(story.rng, PLACES)
    if story.before is None and "{a" not in template:
        return None
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"a": a}, {"m": motion or ""}, {"p": p, "q": q}), people, motion, place=p)


def _fix_hour(story: Story, template: str) -> Asked | None:
    a, people = _actor(story)
    h, i = _two(story.rng, HOURS)
    if story.before is None and "{a" not in template:
        return None
    motion = story.rng.choice(MOTIONS) if "{m" in template else None
    return Asked(Filling({"a": a}, {"m": motion or ""}, hours={"h": h, "i": i}), people, motion, hour=h)


def _fix_clothes(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
    a = story.rng.choice(story.shown)
    g, k = _two(story.rng, OUTFITS)
    return Asked(Filling({"a": a}, clothes={"g": (g, "a"), "k": (k, "a")}), clothes={a: g})


def _stop(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
    w = story.motion
    if "{w" in template and (w == "stand" or story.rng.random() < 0.22):
        w = story.rng.choice([motion for motion in MOTIONS if motion not in (w, "stand")])
        return Asked(Filling({"a": story.rng.choice(story.shown)}, {"w": w}))
    return Asked(Filling({"a": story.rng.choice(story.shown)}, {"w": w}), motion="stand")


def _not_motion_first(story: Story, template: str) -> Asked | None:
    if story.before is not None:
        return None
    a = story.rng.choice(CHARACTERS)
    w = story.rng.choice([motion for motion in MOTIONS if motion != "stand"])
    return Asked(Filling({"a": a}, {"w": w}), (a,), "stand", notes=("no_motion",))


def _not_place(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
    q = story.place
    fill = Filling({"a": story.rng.choice(story.shown)}, places={"q": q})
    if "{q" in template and story.rng.random() < 0.2:
        fill.places = {"q": story.rng.choice([place for place in PLACES if place != q])}
        return Asked(fill)
    return Asked(fill, place="forest" if q == "meadow" else "meadow")


def _not_hour(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
    i = story.hour if story.rng.random() < 0.7 else HOURS[story.hour == "day"]
    return Asked(Filling(hours={"i": i}), hour=HOURS[i == "day"])


def _not_hour_acts(story: Story, template: str) -> Asked | None:
    a, people = _actor(story)
    i, motion = story.rng.choice(("night", "night", "day")), story.rng.choice(MOTIONS)
    p = story.rng.choice(PLACES) if "{p" in template else None
    return Asked(
        Filling({"a": a}, {"m": motion}, {"p": p or ""}, {"i": i}), people, motion, place=p, hour=HOURS[i == "day"]
    )


def _not_clothes(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
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
        a, b = _two(rng, CHARACTERS)
    else:
        return None
    g, k = _two(rng, OUTFITS)
    fill = Filling({"a": a, "b": b}, {"m": motion or ""}, clothes={"g": (g, "a"), "k": (k, "b")})
    return Asked(fill, (a, b), motion, clothes={a: g, b: k})


def _one_dressed(story: Story, template: str) -> Asked | None:
    if len(story.shown) != 2:
        return None
    a, b = story.rng.sample(story.shown, 2)
    g = story.rng.choice(OUTFITS)
    return Asked(Filling({"a": a, "b": b}, clothes={"g": (g, "a")}), clothes={a: g})


def _swap_clothes(story: Story, template: str) -> Asked | None:
    if len(story.shown) != 2 or story.before is None:
        return None
    (a, b), (g, k) = story.shown, story.before.outfits
    if g == k and story.rng.random() < 0.8:
        return None
    return Asked(Filling({"a": a, "b": b}), clothes={a: k, b: g})


def _first_only(story: Story, template: str) -> Asked | None:
    if story.before is not None:
        return None
    a, b = _two(story.rng, CHARACTERS)
    g = story.rng.choice(OUTFITS)
    people = (a, b) if "{b}" in template else (a,)
    clothes = {a: g} if "{g" in template else {}
    return Asked(
        Filling({"a": a, "b": b}, clothes={"g": (g, "a")}), people, "stand", clothes=clothes, notes=("no_motion",)
    )


def _two_motions(story: Story, template: str) -> Asked | None:
    m, w = _two(story.rng, MOTIONS)
    if "{b" in template or template.startswith("one "):
        if len(story.shown) == 2:
            a, b = story.rng.sample(story.shown, 2)
        elif story.before is None and "{b" in template:
            a, b = _two(story.rng, CHARACTERS)
        else:
            return None
        return Asked(Filling({"a": a, "b": b}, {"m": m, "w": w}), (a, b), m, notes=("second_motion",))
    a, people = _actor(story)
    if story.before is None and "{a" not in template:
        return None
    return Asked(Filling({"a": a}, {"m": m, "w": w}), people, m, notes=("second_motion",))


def _alike(story: Story, template: str) -> Asked | None:
    """One more gets the clothes that another has on."""
    if story.before is None:
        return None
    worn = dict(zip(story.shown, story.before.outfits, strict=True))
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
    if story.before is None:
        return None
    worn = dict(zip(story.shown, story.before.outfits, strict=True))
    dressed = [name for name in story.shown if worn[name] != "everyday"]
    if not dressed or (len(dressed) > 1 and "{a" not in template):
        return None
    a = story.rng.choice(dressed)
    return Asked(Filling({"a": a}), clothes={a: "everyday"})


def _keeps(story: Story, template: str) -> Asked | None:
    return None if story.before is None else Asked(Filling())


def _three_first(story: Story, template: str) -> Asked | None:
    if len(story.shown) == 2:
        return None
    a, b, c = story.rng.sample(CHARACTERS, 3)
    if story.before is not None:
        a, (b, c) = story.shown[0], story.absent[:2]
    motion = story.rng.choice(MOTIONS)
    return Asked(Filling({"a": a, "b": b, "c": c}, {"m": motion}), (a, b), motion, refused=(c,))


def _thing(story: Story, template: str) -> Asked | None:
    if story.before is None:
        return None
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


def _strength(level: int, motion: str | None = None) -> Class:
    def asked(story: Story, template: str) -> Asked | None:
        a, people = _actor(story)
        if story.before is None and "{a" not in template:
            return None
        m = motion or story.rng.choice(("walk", "run", "jump", "wave", "dance", "fly", "bow"))
        return Asked(Filling({"a": a}, {"m": m}), people, m, level=level)

    return asked


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


_LETTERS = "aaabcdeeefghiijklmnooprsttuuvwxyzqjxz"


def gibberish(rng: random.Random) -> str:
    """A few random letters, sometimes of a keyboard's row."""
    if rng.random() < 0.3:
        row = rng.choice(("qwertyuiop", "asdfghjkl", "zxcvbnm"))
        start = rng.randrange(len(row) - 3)
        return (row[start : start + rng.randint(3, 8)]) * rng.randint(1, 2)
    words = ["".join(rng.choice(_LETTERS) for _ in range(rng.randint(3, 10))) for _ in range(rng.randint(1, 3))]
    return " ".join(words)


def aside_turn(rng: random.Random, turn: tuple[Scene, Utterance]) -> tuple[Scene, Utterance]:
    """A turn with chatter before or after its sentence."""
    scene, utterance = turn
    template = rng.choice(templates("aside"))
    chatter = load("stray")["words" if rng.random() < 0.3 else "chatter"].text(rng)
    text = template.replace("{x}", chatter).replace("{s}", utterance.text).replace("\\n", "\n")
    return scene, dataclasses.replace(utterance, text=cap(text) if rng.random() < 0.5 else text)


CLASSES: Mapping[str, tuple[float, Class]] = {
    "to": (9, _to), "one_acts": (6, _one_acts), "third_acts": (3, _third_acts), "fix_first": (6, _fix_first),
    "fix_pair": (2, _fix_pair), "fix_join": (4, _fix_join), "fix_swap": (2, _fix_swap), "fix_leave": (2.5, _fix_leave),
    "but": (4, _but), "but_acts": (3, _but), "but_leaves": (3, _but_leaves), "absent": (8, _absent),
    "absent_acts": (4, _absent_acts), "crowd": (2, _crowd), "said": (4, _said), "wrong_person": (2, _wrong_person),
    "undo": (4, _undo), "fix_motion": (3.5, _fix_motion), "fix_motion_bare": (3, _fix_motion),
    "fix_place": (2, _fix_place), "fix_place_bare": (3, _fix_place), "fix_hour": (2, _fix_hour),
    "fix_hour_bare": (2, _fix_hour), "fix_clothes": (4, _fix_clothes), "stop": (9, _stop),
    "not_motion_first": (2, _not_motion_first), "not_place": (5, _not_place), "not_hour": (3, _not_hour),
    "not_hour_acts": (2.5, _not_hour_acts), "not_clothes": (2, _not_clothes), "two_outfits": (6, _two_outfits),
    "two_outfits_act": (3, _two_outfits), "one_dressed": (6, _one_dressed), "swap_clothes": (3, _swap_clothes),
    "first_only": (12, _first_only), "two_motions": (5, _two_motions), "two_in_a_row": (3, _two_motions),
    "strong": (2, _strength(5)), "high": (1, _strength(5, "jump")), "weak": (2, _strength(1)),
    "chatter": (8, _chatter), "small_talk": (6, _small_talk), "thing": (4, _thing), "alike": (4, _alike),
    "joins_alike": (3, _alike), "own_off": (3, _own_off), "keeps": (1.5, _keeps), "three_first": (2, _three_first),
}  # fmt: skip
"""Class -> how often it is drawn, and its function; its templates are the section of the same name."""
