"""English verb forms of phrases: third person, -ing and past.

A phrase starts with its verb in the base form: "go for a walk". A further verb that takes the same form is marked
with a tilde: "sit and ~rest". `base` removes the marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_THIRD = {"be": "is", "have": "has", "go": "goes", "do": "does"}
_ING = {
    "lie": "lying",
    "die": "dying",
    "tie": "tying",
    "vie": "vying",
    "picnic": "picnicking",
    "boogie": "boogieing",
    "be": "being",
}
_PAST = dict(
    pair.split(":")
    for pair in """
    be:was become:became begin:began bend:bent blow:blew break:broke bring:brought build:built burst:burst bust:bust
    buy:bought cast:cast catch:caught come:came creep:crept cut:cut do:did draw:drew dream:dreamt drive:drove
    eat:ate fall:fell feel:felt find:found flee:fled fling:flung fly:flew get:got give:gave go:went grow:grew
    have:had hit:hit hold:held keep:kept kneel:knelt know:knew lay:laid lead:led leave:left let:let lie:lay
    lose:lost make:made meet:met pay:paid put:put rid:rid ride:rode rise:rose run:ran say:said see:saw set:set
    shake:shook shoot:shot show:showed shut:shut sing:sang sink:sank sit:sat sleep:slept slide:slid speak:spoke
    speed:sped spend:spent spin:spun spring:sprang stand:stood steal:stole stick:stuck stride:strode strip:stripped
    sweep:swept swim:swam swing:swung take:took teach:taught tell:told tear:tore think:thought throw:threw wake:woke
    wear:wore win:won
    """.split()
)
_DOUBLED = frozenset(
    """
    run jog step hop skip wag sit plop squat nap nod plod strut rub zip pat drop flap dot grin begin get put set
    stop chat spin tap hit let rid swap slip wrap scud zigzag bob jig bop pop snap flip trot shrug hug dip sag wed
    beg stir slam bed cut shut quit drag tug spam don kip strip pin scam lap pad sun gad leg sprog hip
    """.split()
)


def third_person(phrase: str) -> str:
    """The form after he, she or it: "goes for a walk"."""
    return _inflected(phrase, _third)


def ing(phrase: str) -> str:
    """The -ing form: "going for a walk"."""
    return _inflected(phrase, _ing)


def past(phrase: str) -> str:
    """The simple past: "went for a walk"."""
    return _inflected(phrase, _past)


def base(phrase: str) -> str:
    """The phrase without tildes."""
    return phrase.replace("~", "")


def plural(noun: str) -> str:
    """The plural of a noun phrase's last word: "raincoats"."""
    if noun.endswith("s"):
        return noun
    if re.search("(sh|ch|x|z)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search("[^aeiou]y$", noun) else noun + "s"


def _inflected(phrase: str, form: Callable[[str], str]) -> str:
    first, *rest = phrase.split(" ")
    words = [form(first), *(form(word[1:]) if word.startswith("~") else word for word in rest)]
    return " ".join(words)


def _third(verb: str) -> str:
    if verb in _THIRD:
        return _THIRD[verb]
    return plural(verb) if not verb.endswith("s") else verb + "es"


def _ing(verb: str) -> str:
    if verb in _ING:
        return _ING[verb]
    if verb in _DOUBLED:
        return verb + verb[-1] + "ing"
    return verb[:-1] + "ing" if re.search("[^eoy]e$", verb) else verb + "ing"


def _past(verb: str) -> str:
    if verb in _PAST:
        return _PAST[verb]
    if verb.endswith("e"):
        return verb + "d"
    if re.search("[^aeiou]y$", verb):
        return verb[:-1] + "ied"
    return verb + verb[-1] + "ed" if verb in _DOUBLED else verb + "ed"
