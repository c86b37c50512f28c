"""Rewrites a text in a dialect."""

from __future__ import annotations

import random
import re

_WORDS = """
[scots]
out: oot, down: doon, about: aboot, around: aroon, now: noo, house: hoose, town: toon, to: tae, into: intae,
and: an', of: o', with: wi', you: ye, your: yer, not: nae, no: nae, little: wee, small: wee, girl: lass, boy:
lad, go: gang, goes: gangs, don't: dinnae, doesn't: doesnae, can't: cannae, isn't: isnae, along: alang, long:
lang, from: frae, home: hame, over: ower, very: gey, child: bairn, good: guid, do: dae, two: twa, away: awa,
just: jist, night: nicht, himself: hissel, herself: hersel, themselves: theirsels, old: auld, snow: snaw,
walk: dauner
[pirate]
you: ye, your: yer, my: me, is: be, are: be, the: th', and: an', of: o', friend: matey, yes: aye, to: t',
them: 'em, girl: lass, boy: lad, with: wi'
[bard]
you: thou, your: thy, does: doth, has: hath, will: shall, yes: aye, before: ere, often: oft, there: yonder,
please: prithee, it is: 'tis, over: o'er, never: ne'er, between: betwixt, among: amongst, two: twain, evening:
eventide, where: wherefore
[cockney]
him: 'im, her: 'er, his: 'is, he: 'e, have: 'ave, has: 'as, here: 'ere, them: 'em, isn't: ain't, is not:
ain't, nothing: nuffin, something: summat, with: wiv, friend: mate, house: 'ouse, hop: 'op, home: 'ome, you:
ya, thing: fing
[southern]
you: y'all, them: 'em, going to: fixin' to, isn't: ain't, over there: yonder, and: 'n, about: 'bout, them
both: the both of 'em, little: lil, get: git, for: fer, just: jus'
[toddler]
jump: jumpy, jumps: jumpy jump, sleep: sleepies, sleeps: sleepies, walk: walkies, walks: walkies, run: runny,
runs: run run run, dance: dancey, dances: dancey dance, the: da, with: wif, little: widdle, rabbit: wabbit,
robot: wobot, fly: fly fly, and: an, sits: sitty, sit: sitty sit, waves: wavey wavey, wave: wavey, says hello:
say hewwo, hello: hewwo, goodbye: bye byes, very: bewy, that: dat, this: dis, they: dey, them: dem, big: big
big, bed: beddy, fox: foxy, snow: snowy
"""
"""Each dialect's words, by plain word."""

_OPENINGS = {
    "scots": ("Och", "Och aye", "Right, hen", "Och no", "Haud on"),
    "pirate": ("Arr", "Ahoy", "Yo ho", "Avast", "Arr matey"),
    "bard": ("Hark", "Lo", "Behold", "Alas", "O"),
    "cockney": ("Oi", "Blimey", "Cor", "'Ere", "Right"),
    "southern": ("Well", "Well shucks", "Howdy", "Dang", "Alrighty"),
    "toddler": ("Again", "Look", "Mummy look", "No", "Yay"),
}


def _read_words() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name, text in re.findall(r"\[(\w+)\]\n([^\[]+)", _WORDS):
        found[name] = dict(pair.split(": ") for pair in " ".join(text.split()).split(", "))
    return found


_DIALECTS = _read_words()
DIALECTS = tuple(_DIALECTS)


def spoken(rng: random.Random, text: str, dialect: str) -> str:
    """The text in a dialect: its words, -in' for -ing, sometimes an opening word."""
    for plain, own in _DIALECTS[dialect].items():
        if rng.random() < 0.7:
            text = re.sub(rf"\b{plain}\b", own, text, flags=re.IGNORECASE)
    if dialect not in ("bard", "toddler") and rng.random() < 0.8:
        text = re.sub(r"(?<=[a-z]{2})ing\b", "in'", text)
    if dialect == "bard" and rng.random() < 0.5:
        text = re.sub(
            r"\b(walk|jump|sleep|run|dance|wave|fli|sit|bow|join|leave|come|wear|put|take|go)e?s\b", r"\1eth", text
        )
    if rng.random() < 0.3:
        text = f"{rng.choice(_OPENINGS[dialect])}, {text}"
    return text
