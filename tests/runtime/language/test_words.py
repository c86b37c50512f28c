"""Words of an instruction, what a vocabulary puts right in them, and the phrases of a language file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.bundle.language_file import read_language
from animegamer_rt.errors import BundleFileError
from animegamer_rt.language.phrases import Language, LanguageFile
from animegamer_rt.language.words import Vocabulary, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mia’s HAT, and 12 foxes!", ["mia's", "hat", ",", "and", "12", "foxes", "!"]),
        ("crème brûlée sooooo good", ["creme", "brulee", "soo", "good"]),
        ("🦊🏽 at_night", ["🦊", "at", "night"]),
    ],
)
def test_a_text_is_split_into_plain_words_numbers_and_signs(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_two_letters_in_the_wrong_order_are_put_right_where_one_known_word_comes_of_it() -> None:
    vocabulary = Vocabulary({"form", "from", "on", "abcd", "badc"})
    words = ["form", "fomr", "no", "abdc"]
    assert [vocabulary.with_letters_in_order(word) for word in words] == ["form", "form", "no", "abdc"]


def test_a_contraction_that_is_not_known_is_spelt_out() -> None:
    said = "the fox's up, she's in, he's in, they'll go, mia's hat, o'clock"
    spelt = "the fox is up , she is in , he's in , they will go , mia's hat , o'clock"
    vocabulary = Vocabulary({"fox", "she", "he", "he's", "they", "o"})
    assert vocabulary.spelt_out(split_words(said), {"s": "is", "ll": "will"}) == spelt.split()


GERMAN = LanguageFile(phrases={"nothing_changes": "nichts ändert sich", "cut": "nur {value} Wörter"})


def test_phrases_are_those_of_the_file_in_any_language() -> None:
    language = Language(GERMAN)
    assert language.say("nothing_changes") == "nichts ändert sich" and language.say("cut", value="2") == "nur 2 Wörter"


def test_without_a_file_nothing_is_said_but_captions() -> None:
    language = Language()
    assert language.say("nothing_changes") == "" and language.said("walk") == "walk"
    assert language.say("dressed", name="Mia", clothes="a raincoat") == "Mia in a raincoat"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"phrase": {}}, "unknown key 'phrase'.*did you mean 'phrases'"),
        ({"endings": {"s": 1}}, "endings: s: wrong type of value"),
        ({"phrases": {"hello": ""}}, "phrases: hello: unknown key"),
        ({"phrases": {"cut": "{value.__class__}"}}, r"phrases: cut: .*'value.__class__'"),
        ({"phrases": {"cut": "{value:>999999999}"}}, r"phrases: cut: .*'value:>999999999'"),
        ({"phrases": {"cut": "{"}}, "phrases: cut: invalid phrase"),
        ([], "not a table of settings"),
    ],
)
def test_an_unsound_file_is_refused_with_file_key_and_reason(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "language.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleFileError, match=rf"language\.json: the language file cannot be used.*{reason}"):
        read_language(path)
