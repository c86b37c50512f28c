"""Turns that pocket cannot draw literally: unknown names, actions, places and things, other languages.

The labels hold the nearest meaning, and `unknown` what was not understood. What has no near meaning changes nothing.
"Zelki on Tofi's skateboard" means Zelki alone, doing what comes closest to riding it.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, PLACES, Scene, follow

from . import inflect
from .change import change_of, default_outfit
from .lexicon import Phrase, load, sections
from .sentences import Labels, Utterance, labels_of, say
from .state import Override
from .story import Story
from .voices import VOICE_BY_NAME

_VOICES = ("plain", "plain", "plain", "polite", "child", "texting", "learner")

_THINGS = {
    "broom": "fly", "broomstick": "fly", "flying carpet": "fly", "hang-glider": "fly", "jetpack": "fly",
    "skateboard": "run", "bike": "run", "scooter": "run", "roller skates": "run", "horse": "run", "motorbike": "run",
    "chair": "sit", "throne": "sit", "armchair": "sit", "boat": "sit", "stool": "sit",
    "bed": "lie down", "hammock": "lie down", "mattress": "lie down", "trampoline": "jump", "pogo stick": "jump",
    "dance mat": "dance", "dance floor": "dance",
}  # fmt: skip
_KNOWN_THINGS = frozenset(("broom", "broomstick", "chair", "armchair", "stool", "bed", "trampoline", "dance floor"))
_COMES = ("{u} comes", "{u} joins", "add {u}", "now {u}", "where is {u}?", "show me {u}", "{u} too")
_BORROWED = {
    "raincoat": ("raincoat", "yellow raincoat", "rain jacket"),
    "party": ("party clothes", "party outfit", "fancy clothes"),
}
_MADE_UP = 0.4
"""How often an action that pocket cannot draw is a made-up word."""
_SAID = sections(Path(__file__).with_suffix(".txt"))


def odd_turn(story: Story) -> tuple[Scene, Utterance] | None:
    """A scene and a text that asks for more than it; None if the draw does not fit the game."""
    kinds = (
        _unknown_person,
        _unknown_motion,
        _unknown_motion,
        _unknown_place,
        _thing_of_another,
        _thing_of_another,
        _unknown_motion,
        _nonsense,
        _foreign,
    )
    return story.rng.choice(kinds)(story)


def _scene(story: Story, people: tuple[str, ...], motion: str, place: str) -> Scene:
    before = story.before
    outfits = tuple(default_outfit(name, before, story.worn) for name in people)
    return follow(before, Scene(people, motion, 3, place, story.hour == "night", outfits))


def _with_unknown(utterance: Utterance, unknown: str, *without: str) -> Utterance:
    labels: Labels = {key: value for key, value in utterance.labels.items() if key not in without}
    labels["unknown"] = [unknown]
    return dataclasses.replace(utterance, labels=labels)


def _unknown_person(story: Story) -> tuple[Scene, Utterance] | None:
    rng, before = story.rng, story.before
    nearest = rng.choice((*CHARACTERS, "none"))
    unknown = load("unknown_people")[nearest].text(rng)
    place = rng.choice(PLACES) if before is None or rng.random() < 0.3 else before.place
    voice = dataclasses.replace(VOICE_BY_NAME[rng.choice(_VOICES)], described=0.0, nicked=0.0, noise=0.0)
    if nearest == "none":
        if before is None or before.level != 3:
            return None
        scene = follow(before, before)
        sung = rng.choice(_COMES)
        return scene, Utterance(sung.format(u=unknown), {**labels_of(scene), "unknown": [unknown]}, frozenset())
    if before is not None and nearest in before.characters:
        return None
    joins = before is not None and not before.is_pair and rng.random() < 0.4
    people = (*before.characters, nearest) if before and joins else (nearest,)
    scene = _scene(story, people, rng.choice(MOTIONS), place)
    utterance = say(rng, before, scene, voice, story.worn)
    if nearest.lower() not in utterance.text.lower() or nearest not in utterance.text:
        return None
    text = utterance.text.replace(nearest, unknown)
    return scene, _with_unknown(dataclasses.replace(utterance, text=text[:1].upper() + text[1:]), unknown)


def _unknown_motion(story: Story) -> tuple[Scene, Utterance] | None:
    rng, before = story.rng, story.before
    nearest = rng.choice((*MOTIONS, "none", "none"))
    phrases = load("unknown_motions")[nearest]
    people = before.characters if before and rng.random() < 0.6 else (rng.choice(CHARACTERS),)
    phrase = phrases.pick(rng, lambda phrase: phrase.count in (0, len(people)))
    if nearest == "none" and rng.random() < _MADE_UP:
        phrase = Phrase(_made_up(rng))
    place = rng.choice(PLACES) if before is None or rng.random() < 0.25 else before.place
    if nearest == "none" and before is not None and before.level != 3:
        return None
    motion = nearest if nearest != "none" else story.motion
    told = before
    if before is not None and before.motion == motion:
        told = dataclasses.replace(before, motion=rng.choice([other for other in MOTIONS if other != motion]))
    if before is not None and change_of(before, _scene(story, people, motion, place)).kind == "leave":
        return None
    scene = _scene(story, people, motion, place)
    if told is not None and told.level != 3:
        told = dataclasses.replace(told, level=3)
    utterance = say(rng, told, scene, rng.choice(_VOICES), story.worn, Override(motion=phrase))
    known = inflect.base(phrase.text.replace("{pos}", "their"))
    notes = frozenset(("substitute",)) if nearest != "none" else utterance.notes
    return scene, dataclasses.replace(_with_unknown(utterance, known, "level"), notes=notes)


def _unknown_place(story: Story) -> tuple[Scene, Utterance] | None:
    rng, before = story.rng, story.before
    nearest = rng.choice((*PLACES, *PLACES, "none"))
    unknown = load("unknown_places")[nearest].text(rng)
    place = nearest if nearest != "none" else story.place
    people = before.characters if before and rng.random() < 0.7 else (rng.choice(CHARACTERS),)
    motion = before.motion if before and rng.random() < 0.6 else rng.choice(MOTIONS)
    scene = _scene(story, people, motion, place)
    if before is not None and (motion == before.motion or change_of(before, scene).kind == "leave"):
        if before.level != 3 or change_of(before, scene).kind == "leave":
            return None
    elsewhere = rng.choice([other for other in PLACES if other != place])
    told = dataclasses.replace(before, place=elsewhere) if before is not None else None
    utterance = say(rng, told, scene, rng.choice(_VOICES), story.worn, Override(place=unknown))
    return scene, _with_unknown(utterance, unknown)


def _thing_of_another(story: Story) -> tuple[Scene, Utterance] | None:
    rng, before = story.rng, story.before
    rider = rng.choice(CHARACTERS)
    if before is not None and before.is_pair and rider in before.characters:
        return None
    absent = [name for name in CHARACTERS if name != rider]
    owner = rng.choice(absent) if rng.random() < 0.7 else rng.choice(_SAID["owners"])
    thing = rng.choice(tuple(_THINGS))
    place = story.place
    where = ""
    if rng.random() < 0.4:
        place = rng.choice(PLACES)
        static = load("places")[f"{place} at"].pick(
            rng, lambda phrase: phrase.text.startswith(("in ", "on ", "at ", "by "))
        )
        where = " " + static.text
    if rng.random() < 0.25:
        outfit = rng.choice(tuple(_BORROWED))
        thing = rng.choice(_BORROWED[outfit])
        motion = story.motion
        scene = dataclasses.replace(_scene(story, (rider,), motion, place), outfits=(outfit,))
        scene = dataclasses.replace(scene, level=before.level) if before else scene
        frame, said, unknown = rng.choice(_SAID["wears"]), {"who", "outfits"}, []
    else:
        scene = _scene(story, (rider,), _THINGS[thing], place)
        frame, said = rng.choice(_SAID["rides"]), {"who", "motion"}
        unknown = [] if thing in _KNOWN_THINGS else [thing]
    text = frame.format(a=rider, b=owner, thing=thing)
    text = text[:-1] + where + "?" if text.endswith("?") else text + where
    labels = labels_of(scene)
    labels.pop("level")
    if unknown:
        labels["unknown"] = unknown
    notes = frozenset(("no_motion",)) if before is None and "motion" not in said else frozenset()
    return scene, Utterance(text[:1].upper() + text[1:] if rng.random() < 0.7 else text, labels, frozenset(said), notes)


_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr gn h j k kl kr l m n p pl pr qu r s sc sk sl sm sn sp spl squ st str sw t "
    "thr tr tw v w wh y z zw"
).split()
_VOWELS = "a e i o u oo ee ai ou ea".split()
_ENDS = (
    "b ck d dge ff g k l lk ll lp m mble mp n nch ng ngle nk nt p pple r rb rk rm rt sh ss st t tch tter x zz zzle "
    "ggle rble"
).split()


def _made_up(rng: random.Random) -> str:
    """A made-up verb: "to sprazzle"."""
    verb = rng.choice(_ONSETS) + rng.choice(_VOWELS)
    if rng.random() < 0.3:
        verb += rng.choice("bdgklmnprtvz") + rng.choice(_VOWELS)
    verb += rng.choice(_ENDS)
    return verb + rng.choice(("", "", "", " around", " loudly", " a lot", " the sky", " a biscuit", " {pos} hat"))


def _foreign(story: Story) -> tuple[Scene, Utterance] | None:
    """A sentence in another language: the named characters are shown, and nothing else changes."""
    rng, before = story.rng, story.before
    name = rng.choice(before.characters if before else CHARACTERS)
    text = rng.choice(_SAID["foreign"])
    if before is not None and before.is_pair and "{a}" in text:
        return None
    people = before.characters if before else (name,)
    scene = _scene(story, people, story.motion, story.place)
    if before is not None:
        scene = dataclasses.replace(scene, level=before.level)
    elif "{a}" not in text:
        return None
    labels = labels_of(scene)
    labels["unknown"] = [piece.strip() for piece in text.split("{a}") if piece.strip()]
    said = text.format(a=name)
    notes = frozenset(("nothing",)) if before is not None else frozenset(("no_motion",))
    return scene, Utterance(said if rng.random() < 0.5 else said.lower(), labels, frozenset(), notes)


def _nonsense(story: Story) -> tuple[Scene, Utterance] | None:
    rng, before = story.rng, story.before
    if before is None:
        return None
    text = rng.choice(_SAID["nonsense"])
    scene = follow(before, before)
    return scene, Utterance(text, {**labels_of(scene), "unknown": [text]}, frozenset(), frozenset(("nothing",)))
