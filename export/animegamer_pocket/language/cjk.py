"""Plain Chinese and Japanese sentences: people, motion, place, hour, clothes, who comes and leaves, stop.

No grammar of either language: `templates/cjk.txt` over the words of `phrases/cjk.txt`. `{a}` acts, `{b}` is the other,
`{n}` a newcomer, `{x}` leaves, `{u}` are those shown; `{m}` a motion, `{w}` the last one, `{l}` a manner, `{p}` a
place, `{h}` an hour, `{g}` clothes. What follows `=` is the motion.
"""

from __future__ import annotations

import re

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, Scene, follow

from .change import default_outfit, shows_the_same
from .classes import templates
from .lexicon import load
from .sentences import Utterance, labels_of
from .story import Story

_THEY = {
    "zh": {1: ("他", "她", "它"), 2: ("他们", "她们", "两个人", "大家", "他们俩")},
    "ja": {1: ("彼", "彼女", "この子"), 2: ("二人", "みんな", "ふたり", "彼ら")},
}


def cjk_turn(story: Story) -> tuple[Scene, Utterance] | None:
    """A scene and a Chinese or Japanese text; None if the draw does not fit the game."""
    rng, before, shown = story.rng, story.before, story.shown
    language = rng.choice(("zh", "ja"))
    kinds = ["motion", "motion", "place", "hour", "wear", "wear_all", "stop"]
    kinds += ["join", "swap", "to"] if len(shown) == 1 else ["leave", "leave", "to"]
    kind = rng.choice(kinds) if before else rng.choice(("start",) * 5 + ("still", "to"))
    template = rng.choice(templates(f"{language} {kind}"))
    words = load("cjk")
    absent = story.absent
    a, b = (rng.sample(shown, 2) if len(shown) == 2 else (*shown, *absent)[:2]) if before else rng.sample(CHARACTERS, 2)
    asked = {"a": a, "b": b, "n": absent[0], "x": b}
    motion, place, hour = rng.choice(MOTIONS), rng.choice(PLACES), rng.choice(("day", "night"))
    if kind == "stop" and (before is None or before.motion == "stand"):
        return None
    template, _, to = template.partition("=")
    people = shown
    if kind in ("start", "still", "to"):
        people = (a, b) if "{b}" in template else (a,)
    elif kind == "join":
        people = (*shown, absent[0])
    elif kind == "leave":
        people = (a,)
    elif kind == "swap":
        people = (absent[0],)
    outfit = rng.choice(OUTFITS)
    strong = rng.random() < 0.5

    def slot(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in asked:
            return words[f"{language} {asked[name]}"].text(rng)
        if name == "u":
            return rng.choice(_THEY[language][len(shown)])
        if name == "l":
            return words[f"{language} {'fast' if strong else 'slow'}"].text(rng)
        key = {"m": motion, "w": story.motion, "p": place, "h": hour, "g": outfit}[name]
        return words[f"{language} {key}"].text(rng)

    text = re.sub(r"\{(\w)\}", slot, template)
    named = "{m}" in template or to or kind in ("stop", "still")
    after_motion = to or ("stand" if kind in ("stop", "still") else motion if "{m}" in template else "")
    wearers = people if kind == "wear_all" else (a,) if "{g}" in template else ()
    outfits = tuple(outfit if name in wearers else default_outfit(name, before, story.worn) for name in people)
    level = 3 if named or before is None else before.level
    if "{l}" in template:
        level = 4 if strong else 2
    scene = Scene(
        people,
        after_motion or story.motion,
        level,
        place if "{p}" in template else story.place,
        (hour if "{h}" in template else story.hour) == "night",
        outfits,
        seed=rng.getrandbits(31),
    )
    text += rng.choice(("", "", "。", "。", "！", "？" if language == "zh" else "よ。"))
    scene = follow(before, scene)
    notes = ("no_motion",) if kind == "still" else ("goes_on",) if shows_the_same(before, scene) else ()
    return scene, Utterance(text, labels_of(scene), frozenset(), frozenset(notes))
