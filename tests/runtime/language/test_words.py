"""Words of an instruction, and what a vocabulary puts right in them."""

from __future__ import annotations

import pytest

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
