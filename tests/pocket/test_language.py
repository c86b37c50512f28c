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
from animegamer_pocket.language.cjk import cjk_turn
from animegamer_pocket.language.classes import FOLDER, class_turn, is_trained_on, templates
from animegamer_pocket.language.games import json_lines
from animegamer_pocket.language.inflect import ing, past, third_person
from animegamer_pocket.language.lexicon import expand, load, sections
from animegamer_pocket.language.sentences import MAX_CHARACTERS, Utterance, say
from animegamer_pocket.language.story import Story
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
        who, outfits = line.get("who", []), line["outfits"] if "who" in line else []
        assert isinstance(who, list) and isinstance(outfits, list) and len(who) == len(outfits)
        assert set(who) <= set(CHARACTERS) and set(outfits) <= set(OUTFITS) and line["place"] in PLACES
        assert line.get("motion", "walk") in MOTIONS and line.get("level", 1) in (1, 2, 3, 4, 5)


def test_the_command_prints_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--games", "2", "--seed", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [json.loads(json.dumps(line)) for line in json_lines(2, 1)]


ALONE = scene("Dovan", "run", 3, "city", True, "r")


def turns_of(name: str, before: Scene | None, earlier: Scene | None = None) -> list[tuple[Scene, Utterance]]:
    rng = random.Random(7)
    found = [class_turn(Story(rng, before, earlier, {}), only=name) for _ in range(30)]
    return [turn for turn in found if turn is not None]


@pytest.mark.parametrize(
    "name", ["to", "one_acts", "third_acts", "stop", "two_outfits", "two_motions", "absent", "crowd"]
)
def test_nobody_vanishes_whom_the_sentence_does_not_send_away(name: str) -> None:
    turns = turns_of(name, PAIR)
    assert turns and all(set(after.characters) == {"Mirel", "Bixo"} for after, _ in turns)


@pytest.mark.parametrize(
    ("name", "before"), [("absent", PAIR), ("absent", ALONE), ("third_acts", PAIR), ("crowd", ALONE)]
)
def test_who_is_not_there_cannot_be_sent_away_and_a_third_finds_no_room(name: str, before: Scene) -> None:
    for after, said in turns_of(name, before):
        assert dataclasses.replace(after, before="", start_x=0, facing=1, seed=0) == dataclasses.replace(
            before, before="", start_x=0, facing=1, seed=0
        ), said.text
        assert bool(said.refused) == (name == "third_acts") and ("crowd" in said.notes) == (name == "crowd")


def test_a_denial_leads_to_standing_another_place_or_the_other_hour() -> None:
    assert {after.motion for after, said in turns_of("stop", PAIR)} <= {"stand", "dance"}
    assert "stand" in {after.motion for after, said in turns_of("stop", PAIR)}
    assert {after.place for after, _ in turns_of("not_place", FIRST)} == {"meadow", "forest"}
    assert {after.night for after, _ in turns_of("not_hour", ALONE)} == {True, False}
    assert all(after.characters == ("Mirel",) or after.characters == ("Bixo",) for after, _ in turns_of("but", PAIR))


def test_undo_brings_back_the_scene_before_the_last() -> None:
    for after, said in turns_of("undo", PAIR, earlier=ALONE):
        assert (after.characters, after.motion, after.outfits) == (ALONE.characters, ALONE.motion, ALONE.outfits)
        assert said.notes == {"undo"}
    joined = scene("Dovan+Tofi", "run", 3, "city", True)
    for after, _ in turns_of("said", joined, earlier=ALONE):
        assert "Dovan" in after.characters and "Tofi" not in after.characters and after.is_pair


def test_an_eighth_of_the_templates_is_never_trained_on() -> None:
    lines = {name: found for path in FOLDER.glob("*.txt") for name, found in sections(path).items()}
    for name in ("to", "stop", "absent", "undo"):
        held_out = {text for line in lines[name] if not is_trained_on(line) for text in expand(line)}
        assert held_out and not held_out & set(templates(name)), name


def test_chinese_and_japanese_turns_follow_the_same_rules() -> None:
    rng = random.Random(3)
    turns = [turn for turn in (cjk_turn(Story(rng, PAIR, None, {})) for _ in range(200)) if turn is not None]
    assert all(re.search("[\u3040-\u30ff\u4e00-\u9fff]", said.text) for _, said in turns)
    assert all("{" not in said.text and "=" not in said.text for _, said in turns)
    assert {len(after.characters) for after, _ in turns} == {1, 2}
