"""Turns that pocket cannot draw literally: unknown names, actions, places and things, other languages.

The labels hold the nearest meaning, and `unknown` what was not understood. What has no near meaning changes nothing.
"Zelki on Tofi's skateboard" means Zelki alone, doing what comes closest to riding it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, PLACES, Scene, follow

from . import inflect
from .change import change_of, default_outfit
from .lexicon import Phrase, load
from .plan import FIRST_MOTION
from .sentences import Labels, Utterance, labels_of, say
from .state import Override
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
_FOREIGN_OWNERS = ("Kiki", "Ponyo", "Harry", "Aladdin", "Merlin", "Totoro", "Sosuke", "Pippi", "Tom", "a witch", "Qiqi")
_RIDES = (
    "{a} on {b}'s {thing}", "{a} is on {b}'s {thing}", "put {a} on {b}'s {thing}", "{a} uses {b}'s {thing}",
    "show me {a} on {b}'s {thing}", "{a} borrows {b}'s {thing}", "{a} tries {b}'s {thing}", "now {a} on {b}'s {thing}",
    "can {a} have a go on {b}'s {thing}?", "let {a} use {b}'s {thing}", "what if {a} had {b}'s {thing}?",
    "{a} with {b}'s {thing}", "{a} takes {b}'s {thing}", "how about {a} on {b}'s {thing}?", "{a} on the {thing} of {b}",
)  # fmt: skip
_BORROWED = {
    "raincoat": ("raincoat", "yellow raincoat", "rain jacket"),
    "party": ("party clothes", "party outfit", "fancy clothes"),
}
_WEARS = ("{a} in {b}'s {thing}", "{a} wears {b}'s {thing}", "{a} puts on {b}'s {thing}", "dress {a} in {b}'s {thing}",
          "{a} borrows {b}'s {thing} and wears it", "{a} has {b}'s {thing} on")  # fmt: skip
_MADE_UP = 0.4
"""How often an action that pocket cannot draw is a made-up word."""
_FOREIGN = (
    "{a} tanzt im Wald", "{a} läuft am Strand entlang", "Lass {a} schlafen", "{a} sitzt in der Stadt", "es ist Nacht",
    "und jetzt springt er ganz hoch", "{a} winkt uns zu", "zieh {a} einen Regenmantel an", "mach weiter bitte",
    "{a} danse dans la forêt", "{a} court sur la plage", "il fait nuit maintenant", "maintenant {a} saute",
    "je voudrais voir {a} dans la ville", "{a} s'assoit dans la neige", "fais dormir {a}", "encore une fois",
    "{a} baila en el bosque", "{a} corre por la playa", "ahora es de noche", "quiero que {a} duerma en casa",
    "{a} vuela sobre el desierto", "más rápido", "ponle un abrigo a {a}", "que venga otro amigo",
    "{a} balla nella foresta", "{a} corre sulla spiaggia", "adesso è notte", "ancora",
    "{a} dança na floresta", "{a} corre na praia", "agora é noite", "mais depressa", "quero ver {a} na cidade",
    "{a} danst in het bos", "{a} rent langs het strand", "het is nu nacht", "laat {a} slapen", "nog een keer graag",
    "{a} tańczy w lesie", "{a} biegnie po plaży", "teraz jest noc", "niech {a} usiądzie", "jeszcze raz proszę",
    "{a} dansar i skogen", "{a} springer på stranden", "nu är det natt", "låt {a} sova hemma", "{a} tanssii metsässä",
    "{a} ormanda dans ediyor", "şimdi gece oldu", "{a} menari di hutan", "sekarang malam hari", "{a} nhảy trong rừng",
    "{a} tancuje v lese", "teď je noc", "{a} táncol az erdőben", "most éjszaka van", "{a} dansează în pădure",
    "{a} wa mori de odoru", "ima wa yoru desu", "{a} saltat in silva", "nunc nox est", "{a} anacheza msituni",
)  # fmt: skip
_NONSENSE = (
    "asdf", "qwertz uiop", "???", "!!!", "12345", "lorem ipsum dolor sit amet", "hm", "xx", "🥦🥦", "<script>", "%s%n",
    "kannst du mir helfen?", "das ist ein schöner Tag", "je ne sais pas", "dov'è il gatto", "привет", "こんにちは",
    "你好", "مرحبا", "שלום", "bonjour tout le monde", "what is the capital of France", "who made you?",
    "how much does it cost",
    "is this thing on", "tell me a joke", "2+2=?", "help", "settings", "are you an AI?", "save game",
)  # fmt: skip


def odd_turn(rng: random.Random, before: Scene | None, worn: Mapping[str, str]) -> tuple[Scene, Utterance] | None:
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
    return rng.choice(kinds)(rng, before, worn)


def _scene(before: Scene | None, people: tuple[str, ...], motion: str, place: str, worn: Mapping[str, str]) -> Scene:
    outfits = tuple(default_outfit(name, before, worn) for name in people)
    night = before.night if before else False
    return follow(before, Scene(people, motion, 3, place, night, outfits))


def _with_unknown(utterance: Utterance, unknown: str, *without: str) -> Utterance:
    labels: Labels = {key: value for key, value in utterance.labels.items() if key not in without}
    labels["unknown"] = [unknown]
    return dataclasses.replace(utterance, labels=labels)


def _unknown_person(
    rng: random.Random, before: Scene | None, worn: Mapping[str, str]
) -> tuple[Scene, Utterance] | None:
    nearest = rng.choice((*CHARACTERS, "none"))
    unknown = load("unknown_people")[nearest].text(rng)
    place = rng.choice(PLACES) if before is None or rng.random() < 0.3 else before.place
    voice = dataclasses.replace(VOICE_BY_NAME[rng.choice(_VOICES)], described=0.0, nicked=0.0, noise=0.0)
    if nearest == "none":
        if before is None or before.level != 3:
            return None
        scene = follow(before, before)
        sung = rng.choice(
            (
                "{u} comes",
                "{u} joins",
                "add {u}",
                "now {u}",
                "where is {u}?",
                "show me {u}",
                "{u} too",
            )
        )
        return scene, Utterance(sung.format(u=unknown), {**labels_of(scene), "unknown": [unknown]}, frozenset())
    if before is not None and nearest in before.characters:
        return None
    joins = before is not None and not before.is_pair and rng.random() < 0.4
    people = (*before.characters, nearest) if before and joins else (nearest,)
    scene = _scene(before, people, rng.choice(MOTIONS), place, worn)
    utterance = say(rng, before, scene, voice, worn)
    if nearest.lower() not in utterance.text.lower() or nearest not in utterance.text:
        return None
    text = utterance.text.replace(nearest, unknown)
    return scene, _with_unknown(dataclasses.replace(utterance, text=text[:1].upper() + text[1:]), unknown)


def _unknown_motion(
    rng: random.Random, before: Scene | None, worn: Mapping[str, str]
) -> tuple[Scene, Utterance] | None:
    nearest = rng.choice((*MOTIONS, "none", "none"))
    phrases = load("unknown_motions")[nearest]
    people = before.characters if before and rng.random() < 0.6 else (rng.choice(CHARACTERS),)
    phrase = phrases.pick(rng, lambda phrase: phrase.count in (0, len(people)))
    if nearest == "none" and rng.random() < _MADE_UP:
        phrase = Phrase(_made_up(rng))
    place = rng.choice(PLACES) if before is None or rng.random() < 0.25 else before.place
    if nearest == "none" and before is not None and before.level != 3:
        return None
    motion = nearest if nearest != "none" else before.motion if before else FIRST_MOTION
    told = before
    if before is not None and before.motion == motion:
        told = dataclasses.replace(before, motion=rng.choice([other for other in MOTIONS if other != motion]))
    if before is not None and change_of(before, _scene(before, people, motion, place, worn)).kind == "leave":
        return None
    scene = _scene(before, people, motion, place, worn)
    if told is not None and told.level != 3:
        told = dataclasses.replace(told, level=3)
    utterance = say(rng, told, scene, rng.choice(_VOICES), worn, Override(motion=phrase))
    known = inflect.base(phrase.text.replace("{pos}", "their"))
    notes = frozenset(("substitute",)) if nearest != "none" else utterance.notes
    return scene, dataclasses.replace(_with_unknown(utterance, known, "level"), notes=notes)


def _unknown_place(rng: random.Random, before: Scene | None, worn: Mapping[str, str]) -> tuple[Scene, Utterance] | None:
    nearest = rng.choice((*PLACES, *PLACES, "none"))
    unknown = load("unknown_places")[nearest].text(rng)
    place = nearest if nearest != "none" else before.place if before else "meadow"
    people = before.characters if before and rng.random() < 0.7 else (rng.choice(CHARACTERS),)
    motion = before.motion if before and rng.random() < 0.6 else rng.choice(MOTIONS)
    scene = _scene(before, people, motion, place, worn)
    if before is not None and (motion == before.motion or change_of(before, scene).kind == "leave"):
        if before.level != 3 or change_of(before, scene).kind == "leave":
            return None
    elsewhere = rng.choice([other for other in PLACES if other != place])
    told = dataclasses.replace(before, place=elsewhere) if before is not None else None
    utterance = say(rng, told, scene, rng.choice(_VOICES), worn, Override(place=unknown))
    return scene, _with_unknown(utterance, unknown)


def _thing_of_another(
    rng: random.Random, before: Scene | None, worn: Mapping[str, str]
) -> tuple[Scene, Utterance] | None:
    rider = rng.choice(CHARACTERS)
    if before is not None and before.is_pair and rider in before.characters:
        return None
    absent = [name for name in CHARACTERS if name != rider]
    owner = rng.choice(absent) if rng.random() < 0.7 else rng.choice(_FOREIGN_OWNERS)
    thing = rng.choice(tuple(_THINGS))
    place = before.place if before else "meadow"
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
        motion = before.motion if before else FIRST_MOTION
        scene = dataclasses.replace(_scene(before, (rider,), motion, place, worn), outfits=(outfit,))
        scene = dataclasses.replace(scene, level=before.level) if before else scene
        frame, said, unknown = rng.choice(_WEARS), {"who", "outfits"}, []
    else:
        scene = _scene(before, (rider,), _THINGS[thing], place, worn)
        frame, said = rng.choice(_RIDES), {"who", "motion"}
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


def _foreign(rng: random.Random, before: Scene | None, worn: Mapping[str, str]) -> tuple[Scene, Utterance] | None:
    """A sentence in another language: the named characters are shown, and nothing else changes."""
    name = rng.choice(before.characters if before else CHARACTERS)
    text = rng.choice(_FOREIGN)
    if before is not None and before.is_pair and "{a}" in text:
        return None
    people = before.characters if before else (name,)
    motion, place = (before.motion, before.place) if before else (FIRST_MOTION, "meadow")
    scene = _scene(before, people, motion, place, worn)
    if before is not None:
        scene = dataclasses.replace(scene, level=before.level)
    elif "{a}" not in text:
        return None
    labels = labels_of(scene)
    labels["unknown"] = [piece.strip() for piece in text.split("{a}") if piece.strip()]
    said = text.format(a=name)
    notes = frozenset(("nothing",)) if before is not None else frozenset(("no_motion",))
    return scene, Utterance(said if rng.random() < 0.5 else said.lower(), labels, frozenset(), notes)


def _nonsense(rng: random.Random, before: Scene | None, worn: Mapping[str, str]) -> tuple[Scene, Utterance] | None:
    if before is None:
        return None
    text = rng.choice(_NONSENSE)
    scene = follow(before, before)
    return scene, Utterance(text, {**labels_of(scene), "unknown": [text]}, frozenset(), frozenset(("nothing",)))
