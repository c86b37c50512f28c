"""Sentence classes: what players say that changes a scene otherwise than by naming its next state.

One does something to the other, a name or a motion taken back, a denial, an exception, somebody absent sent away, two
outfits, two motions, chatter, undo. A class has a section of templates in `templates/` (see `filling`) and a function
that says what the scene becomes. An eighth of the templates is never trained on.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import random
from collections.abc import Mapping
from pathlib import Path

from animegamer_pocket.world.scene import PLACES, Scene, follow

from . import about_nothing, about_people, about_things
from .change import default_outfit, shows_the_same
from .filling import Filling, hour, place
from .lexicon import expand, load, sections
from .noise import untidy
from .references import pronoun_of
from .sentences import Labels, Utterance, labels_of
from .story import HOURS, Asked, Classes, Story
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


@functools.cache
def templates(section: str) -> tuple[str, ...]:
    """The templates of a section that are trained on."""
    return _read()[section]


@functools.cache
def _read() -> Mapping[str, tuple[str, ...]]:
    found = {name: lines for path in sorted(FOLDER.glob("*.txt")) for name, lines in sections(path).items()}
    return {name: tuple(itertools.chain(*map(expand, filter(is_trained_on, found[name])))) for name in found}


def is_trained_on(line: str) -> bool:
    """Whether a line of templates is in the corpus: seven of eight are."""
    return hashlib.sha256(line.encode()).digest()[0] % _HELD_OUT != 0


def class_turn(story: Story, only: str | None = None) -> tuple[Scene, Utterance] | None:
    """The next scene and a sentence of a random class; None if the draw does not fit the game.

    only: of this class alone.
    """
    rng = story.rng
    name = only or rng.choices(tuple(CLASSES), [weight for weight, _, _ in CLASSES.values()])[0]
    for _ in range(_TRIES if only else 1):
        template = rng.choice(templates(name))
        pair = template.endswith(" @pair")
        if pair and name != "first_only" and len(story.shown) < 2:
            continue
        template = template.removesuffix(" @pair")
        _, when, ask = CLASSES[name]
        asked = ask(story, template) if story.is_at(when) else None
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


def aside_turn(rng: random.Random, turn: tuple[Scene, Utterance]) -> tuple[Scene, Utterance]:
    """A turn with chatter before or after its sentence."""
    scene, utterance = turn
    template = rng.choice(templates("aside"))
    chatter = load("stray")["words" if rng.random() < 0.3 else "chatter"].text(rng)
    text = template.replace("{x}", chatter).replace("{s}", utterance.text).replace("\\n", "\n")
    return scene, dataclasses.replace(utterance, text=cap(text) if rng.random() < 0.5 else text)


CLASSES: Classes = {
    **about_people.CLASSES,
    **about_things.CLASSES,
    **about_nothing.CLASSES,
}
"""Every class; its templates are the section of the same name."""
