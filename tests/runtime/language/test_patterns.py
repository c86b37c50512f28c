"""Patterns of words find what their bundle means by them, refuse what they cannot mean, and never take for ever."""

from __future__ import annotations

import time

import pytest

from animegamer_rt.errors import ConfigError
from animegamer_rt.language.rules import BUILT_IN, Pattern, WordClass

CLASSES = {
    **BUILT_IN,
    "beside": WordClass(["with", "near", "next to"]),
    "apart": WordClass(["not", "*way"]),
    "joint": WordClass(["and", "*ly", "<sign>", "<edge>"]),
    "several": WordClass(["*s", "us", "!times"]),
    "slip": WordClass(["no", "i mean", "<sign>"]),
    "start": WordClass(["<edge>"]),
}


def found(pattern: str, text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[match.start : match.end]) for match in Pattern(pattern, CLASSES).find(words)]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("go on", "go on , go on and on", ["go on", "go on"]),
        ("it off", "it off it's off it off's", ["it off", "it off's"]),
        ("<beside> <any>", "near mia , next to tobo", ["near mia", "next to tobo"]),
        ("!<apart> <beside> <any>", "not with mia , away with tobo but with zed", ["with zed"]),
        ("!<start> <any>", "one two three", ["two", "three"]),
        ("<beside> <any>? who=<any> &<joint>", "with old mia and near her slowly", ["with old mia", "near her"]),
        ("<number> of? <several>", "3 foxes , 4 of us , 5 times", ["3 foxes", "4 of us"]),
        ("who=<letters> <any>* <slip>+ not $who", "mia runs , no , not mia", ["mia runs , no , not mia"]),
        ("who=<letters> <any>* <slip>+ not $who", "mia runs , no , not tobo", []),
        ("a <any>* b", "a x b y b", ["a x b"]),
        ("a b*", "a b b a", ["a b b", "a"]),
    ],
)
def test_a_pattern_finds_its_words(pattern: str, text: str, expected: list[str]) -> None:
    assert found(pattern, text) == expected


def test_slots_keep_the_words_of_their_elements() -> None:
    (match,) = Pattern("who=<letters> rest=<any>* <slip>+ not $who new=<any>", CLASSES).find(
        "mia runs home i mean , not mia tobo".split()
    )
    assert match.slots == {"who": ("mia",), "rest": ("runs", "home"), "new": ("tobo",)}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "it has no required word, or over 16"),
        ("<any>? <any>*", "it has no required word, or over 16"),
        ("a " * 17, "it has no required word, or over 16"),
        ("a a* b* c*", "more than two elements have"),
        ("(a|b)+", "'\\(a|b\\)\\+' is not an element"),
        ("<besides> a", "no class <besides>"),
        ("a &<joint> b", "'&<joint>' is not the first"),
        ("a !<joint>", "'!<joint>' is not the first"),
        ("$who runs", "no earlier element fills \\$who"),
        ("who=<any>* a $who", "no earlier element fills \\$who once"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"invalid pattern.*{reason}"):
        Pattern(pattern, CLASSES)


@pytest.mark.parametrize("entry", ["", "**ly", "two  spaces", "<every>", "! no", "a <b>"])
def test_what_is_no_entry_of_a_class_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="invalid entry of a class"):
        WordClass(["fine", entry])


@pytest.mark.parametrize(
    "pattern", ["<a>+ <a>+ b", "<any>* <a>* b", "a? a? a? a? a? a? a? a? a? a? a? a? <a>+ b", "x=<a> <any>* <a>* $x b"]
)
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    several_ways = WordClass(["a", "a a", "a a a", "<any>"])
    started = time.process_time()
    assert not list(Pattern(pattern, {**CLASSES, "a": several_ways}).find(["a"] * 96))
    assert time.process_time() - started < 20, "2 ** 96 steps would not end"
