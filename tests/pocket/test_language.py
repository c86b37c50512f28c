"""The corpus of what people say: words, sentences, typos and labels."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re

import pytest

from animegamer_pocket.language import __main__ as program
from animegamer_pocket.language.change import change_of
from animegamer_pocket.language.games import json_lines
from animegamer_pocket.language.inflect import ing, past, third_person
from animegamer_pocket.language.lexicon import load
from animegamer_pocket.language.sentences import MAX_CHARACTERS, say
from animegamer_pocket.language.voices import VOICE_BY_NAME
from animegamer_pocket.world import scene as world
from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, Scene

TIDY = dataclasses.replace(VOICE_BY_NAME["plain"], noise=-1.0, described=0.0, nicked=0.0)
"""The plain voice without typos, in the characters' own names. Case still changes."""


def scene(
    who: str, motion: str = "walk", level: int = 3, place: str = "meadow", night: bool = False, wear: str = "e"
) -> Scene:
    names = tuple(who.split("+"))
    outfits = {"e": "everyday", "r": "raincoat", "p": "party"}
    return Scene(
        names, motion, level, place, night, tuple(outfits[letter] for letter in wear.ljust(len(names), wear[-1]))
    )


def follow(before: Scene, **changes: object) -> Scene:
    after = dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    return world.follow(before, after)


def names_phrase(text: str, texts: tuple[str, ...]) -> bool:
    bare = re.sub(r"\{\w+\}", "", text.lower())
    phrases = {re.sub("^(the|a) ", "", phrase.lower()) for phrase in texts if "{" not in phrase}
    return any(re.search(rf"\b{re.escape(phrase)}\b", bare) for phrase in phrases)


def test_verbs_take_their_forms() -> None:
    for phrase, third, going, gone in (
        ("lie down", "lies down", "lying down", "lay down"),
        ("sit and ~rest", "sits and rests", "sitting and resting", "sat and rested"),
        ("jump up and down", "jumps up and down", "jumping up and down", "jumped up and down"),
        ("go for a walk", "goes for a walk", "going for a walk", "went for a walk"),
        ("hop", "hops", "hopping", "hopped"),
        ("wave", "waves", "waving", "waved"),
        ("fly", "flies", "flying", "flew"),
        ("curtsy", "curtsies", "curtsying", "curtsied"),
        ("dash", "dashes", "dashing", "dashed"),
        ("tiptoe", "tiptoes", "tiptoeing", "tiptoed"),
    ):
        assert (third_person(phrase), ing(phrase), past(phrase)) == (third, going, gone)


def test_the_same_seed_gives_the_same_games() -> None:
    assert list(json_lines(5, 3)) == list(json_lines(5, 3))
    assert list(json_lines(5, 3)) != list(json_lines(5, 4))


def test_no_phrase_means_two_things() -> None:
    for file, keys in {
        "motions": MOTIONS,
        "motion_nouns": MOTIONS,
        "places": tuple(f"{place}{part}" for place in PLACES for part in ("", " at", " seen")),
        "hours": ("day", "night", "day at", "night at", "day falls", "night falls"),
        "clothes": OUTFITS,
        "manners": tuple(load("manners")),
        "emoji": (*MOTIONS, *PLACES, "day", "night", *OUTFITS, *CHARACTERS),
    }.items():
        meaning: dict[str, str] = {}
        for key in keys:
            for text in load(file)[key].texts:
                assert meaning.setdefault(text, key.split(" ")[0]) == key.split(" ")[0], (text, key, meaning[text])


FIRST = scene("Mirel", "walk", 3, "meadow")
PAIR = scene("Mirel+Bixo", "dance", 5, "beach", True, "re")
CASES = [
    (None, scene("Mirel", "dance", 3, "beach"), {"motion": "dance", "place": "beach", "night": False, "level": 3}),
    (None, scene("Tofi+Zelki", "sit", 3, "room", True), {"who": ["Tofi", "Zelki"], "outfits": ["everyday"] * 2}),
    (FIRST, follow(FIRST, place="desert"), {"who": ["Mirel"], "motion": "walk", "place": "desert"}),
    (FIRST, follow(FIRST, night=True), {"place": "meadow", "night": True}),
    (FIRST, follow(FIRST, motion="bow"), {"motion": "bow", "level": 3, "night": False}),
    (FIRST, follow(FIRST, outfits=("party",)), {"motion": "walk", "outfits": ["party"]}),
    (FIRST, follow(FIRST, characters=("Mirel", "Tofi"), outfits=("everyday",) * 2), {"who": ["Tofi", "Mirel"]}),
    (FIRST, follow(FIRST, characters=("Dovan",), motion="fly"), {"who": ["Dovan"], "motion": "fly", "place": "meadow"}),
    (PAIR, follow(PAIR, characters=("Bixo",), outfits=("everyday",)), {"who": ["Bixo"], "motion": "dance"}),
    (PAIR, follow(PAIR, outfits=("everyday", "everyday")), {"outfits": ["everyday", "everyday"], "night": True}),
    (PAIR, follow(PAIR, level=3), {"motion": "dance"}),
    (PAIR, follow(PAIR, characters=("Mirel", "Zelki"), motion="sit", level=3), {"motion": "sit"}),
]  # fmt: skip


def test_labels_follow_from_the_text_and_the_turn_before() -> None:
    for (before, after, labels), seed in itertools.product(CASES, range(40)):
        said = say(random.Random(seed), before, after, TIDY)
        for key, value in labels.items():
            assert said.labels.get(key, value) == value, (said.text, said.labels)
        assert {"who", "place", "night", "outfits"} <= set(said.labels)
        if before is None or before.place != after.place:
            place = after.place
            texts = sum((load("places")[f"{place}{part}"].texts for part in ("", " at", " seen")), ())
            assert names_phrase(said.text, texts) or place == "meadow", said.text
        if before is not None and before.night != after.night:
            hour = "night" if after.night else "day"
            texts = sum((load("hours")[f"{hour}{part}"].texts for part in ("", " at", " falls")), ())
            assert names_phrase(said.text, texts), said.text
        change = change_of(before, after)
        for name in change.new:
            assert name.lower() in said.text.lower(), said.text


def test_every_line_has_the_schema_and_fits_in_500_characters() -> None:
    known = {"game", "turn", "say", "who", "motion", "place", "night", "outfits", "level", "unknown"}
    for line in json_lines(120, 1):
        assert set(line) <= known and line["say"] and len(str(line["say"])) <= MAX_CHARACTERS
        assert "{" not in str(line["say"]) and "~" not in str(line["say"]), line
        who, outfits = line["who"], line["outfits"]
        assert isinstance(who, list) and isinstance(outfits, list) and len(who) == len(outfits)
        assert set(who) <= set(CHARACTERS) and set(outfits) <= set(OUTFITS) and line["place"] in PLACES
        assert line.get("motion", "walk") in MOTIONS and line.get("level", 1) in (1, 2, 3, 4, 5)


def test_the_command_prints_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--games", "2", "--seed", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [json.loads(json.dumps(line)) for line in json_lines(2, 1)]
