"""A language file: rules and phrases of any language, checked when it is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.bundle.language_file import read_language
from animegamer_rt.errors import BundleFileError
from animegamer_rt.language.rules import Language, LanguageFile, Rewrite

GERMAN = LanguageFile(
    classes={"neben": ("mit", "neben"), "ende": ("<sign>", "<edge>")},
    rewrites=(Rewrite("wer=<letters> rest=<any>* nein nicht $wer sondern neu=<letters>", "$neu $rest"),),
    rules={"company": ("<neben> dem? who=<letters> &<ende>",), "goes_on": ("weiter",)},
    phrases={"nothing_changes": "nichts ändert sich", "more": "und {count} weitere"},
)


def test_rules_and_phrases_are_those_of_the_file_in_any_language() -> None:
    language = Language(GERMAN)
    assert language.rewritten("mia rennt nein nicht mia sondern tobo".split()) == ["tobo", "rennt"]
    words = "mia rennt mit dem roboter".split()
    assert [match.slots["who"] for match in language.find("company", words)] == [("roboter",)]
    assert language.has("goes_on", ["weiter"]) and not language.has("crowd", words)
    assert language.say("nothing_changes") == "nichts ändert sich" and language.say("more", count=2) == "und 2 weitere"


def test_rewrites_cannot_make_a_sentence_longer_than_any_that_is_read() -> None:
    doubled = Language(LanguageFile(rewrites=(Rewrite("a", "a a"),) * 64))
    assert len(doubled.rewritten(["a"])) == 96


def test_without_a_file_nothing_is_found_and_nothing_said_but_captions() -> None:
    language, words = Language(), "keep going with the robot".split()
    assert language.rewritten(words) == words and not language.has("company", words)
    assert language.say("nothing_changes") == ""
    assert language.say("dressed", name="Mia", clothes="a raincoat") == "Mia in a raincoat"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"rule": {}}, "unknown key 'rule'.*did you mean 'rules'"),
        ({"classes": {"a": "b"}}, "classes: a: wrong type of value"),
        ({"classes": {"a": ["<b"]}}, "classes: a: invalid entry of a class.*'<b'"),
        ({"rules": {"companion": []}}, "rules: companion: unknown key.*company"),
        ({"rules": {"crowd": ["many", "<many> a"]}}, r"rules: crowd\[1\]: .*no class <many>"),
        ({"rules": {"company": ["with <any>"]}}, r"rules: company\[0\]: .*'who' in 'with <any>'"),
        ({"rewrites": [{"find": "a", "say": "$b"}]}, r"rewrites\[0\]: .*'b' in '\$b'"),
        ({"rewrites": [{"find": "a"}]}, r"rewrites\[0\]: the key 'say' is missing"),
        ({"clothes_asked": ["in $clothes"]}, r"clothes_asked\[0\]: .*expected word"),
        ({"phrases": {"hello": ""}}, "phrases: hello: unknown key"),
        ({"phrases": {"more": "{count.__class__}"}}, r"phrases: more: .*'count.__class__'"),
        ({"phrases": {"more": "{count:>999999999}"}}, r"phrases: more: .*'count:>999999999'"),
        ({"phrases": {"more": "{"}}, "phrases: more: invalid phrase"),
        ([], "not a table of settings"),
    ],
)
def test_a_file_that_is_not_sound_is_refused_with_file_key_and_reason(
    tmp_path: Path, content: Any, reason: str
) -> None:
    path = tmp_path / "language.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleFileError, match=rf"language\.json: the language file cannot be used.*{reason}"):
        read_language(path)
