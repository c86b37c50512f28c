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
from animegamer_pocket.language.frames import load_frames
from animegamer_pocket.language.games import json_lines, sample_game
from animegamer_pocket.language.inflect import ing, past, third_person
from animegamer_pocket.language.lexicon import concept_words, load
from animegamer_pocket.language.noise import misspell
from animegamer_pocket.language.sentences import MAX_CHARACTERS, say
from animegamer_pocket.language.voices import VOICE_BY_NAME, VOICES
from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, Scene, is_held_out, next_start_x

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
    return dataclasses.replace(after, start_x=next_start_x(before, after.characters))


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
    (FIRST, follow(FIRST, characters=("Mirel", "Tofi"), outfits=("everyday",) * 2), {"who": ["Mirel", "Tofi"]}),
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


def test_an_absent_character_is_named_only_as_it_leaves() -> None:
    rng = random.Random(7)
    for _ in range(150):
        before: Scene | None = None
        for turn in sample_game(rng):
            kind = change_of(before, turn.scene).kind
            owner = re.compile(r"(\w+)'s|(?:the|of) (\w+)")
            if (
                kind in ("start", "keep", "join")
                and not owner.search(turn.utterance.text)
                and "unknown" not in turn.utterance.labels
            ):
                words = set(re.findall(r"\w+", turn.utterance.text.lower()))
                absent = {name.lower() for name in CHARACTERS if name not in turn.scene.characters}
                assert not words & absent, turn.utterance.text
            before = turn.scene


def test_every_line_has_the_schema_and_fits_in_500_characters() -> None:
    known = {"game", "turn", "say", "who", "motion", "place", "night", "outfits", "level", "unknown"}
    for line in json_lines(120, 1):
        assert set(line) <= known and line["say"] and len(str(line["say"])) <= MAX_CHARACTERS
        assert "{" not in str(line["say"]) and "~" not in str(line["say"]), line
        who, outfits = line["who"], line["outfits"]
        assert isinstance(who, list) and isinstance(outfits, list) and len(who) == len(outfits)
        assert set(who) <= set(CHARACTERS) and set(outfits) <= set(OUTFITS) and line["place"] in PLACES
        assert line.get("motion", "walk") in MOTIONS and line.get("level", 1) in (1, 2, 3, 4, 5)


def test_a_training_game_has_no_held_out_combination() -> None:
    rng = random.Random(2)
    assert not any(is_held_out(turn.scene) for _ in range(60) for turn in sample_game(rng))


def test_every_frame_of_a_voice_can_be_filled() -> None:
    rng = random.Random(5)
    for voice in VOICES:
        for _ in range(40):
            before = None
            for turn in sample_game(rng, 4):
                text = say(rng, before, turn.scene, voice.name).text
                assert not re.search(r"[{}~]|<\w+\||  ", text), (voice.name, text)
                before = turn.scene
        slots = {slot for frames in load_frames(voice.name).values() for frame in frames for slot in frame.slots}
        assert not any(" " in slot for slot in slots), voice.name


def test_a_typo_stays_nearer_to_its_word_than_to_another_concept() -> None:
    rng = random.Random(3)
    words = concept_words()
    tried = 0
    for word in rng.sample(sorted(word for word in words if len(word) > 3), 40):
        typo = misspell(rng, word)
        if typo == word:
            continue
        tried += 1
        for other, concepts in words.items():
            kin = word in (third_person(other), ing(other), past(other))
            if not kin and not concepts & words[word] and abs(len(other) - len(typo)) < 2:
                assert _edits(typo, other) > 1, (word, typo, other)
    assert tried > 15


def _edits(a: str, b: str) -> int:
    """Letters swapped, dropped, added or replaced between two words."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        rows.append([i])
        for j, y in enumerate(b, 1):
            best = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                best = min(best, rows[i - 2][j - 2] + 1)
            rows[i].append(best)
    return rows[-1][-1]


def test_the_command_prints_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--games", "2", "--seed", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [json.loads(json.dumps(line)) for line in json_lines(2, 1)]
