"""What the block-list finds, and what it lets by."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from animegamer_rt.errors import ConfigError, ProtocolError
from animegamer_rt.serving.server import instruction_filter
from animegamer_rt.serving.server.instruction_filter import InstructionFilter

WORDS = ("naked", "chop off", "cut", "blood", "hymn", "kill", "maze", "fuss")
TABLE = Path(instruction_filter.__file__).with_name("look_alikes.txt").read_text("ascii").splitlines()
LIKE = {line.split()[0]: [chr(int(code, 16)) for code in line.split()[1:]] for line in TABLE if line[0] != "#"}


@pytest.fixture
def words(tmp_path: Path) -> InstructionFilter:
    path = tmp_path / "blocked.txt"
    path.write_text("# not here\n\u200b\n\u2665\n" + "\n".join(WORDS), encoding="utf-8")
    return InstructionFilter(path)


def each_letter(word: str, written: Callable[[str], Sequence[str]]) -> list[str]:
    """The word with one letter at a time written in each of these ways."""
    return [word[:at] + one + word[at + 1 :] for at, letter in enumerate(word) for one in written(letter)]


def styled(word: str, start: int) -> str:
    """The word in 26 letters that follow each other in Unicode."""
    return "".join(chr(start + ord(letter) - ord("a")) if letter != " " else " " for letter in word)


SEEN = {
    "n": "\u039d\u0578", "h": "\u0397\u041d", "m": "\u039c", "z": "\u0396", "y": "\u03a5", "t": "\u03c4\u03a4",
    "o": "\u03bf\u03c3", "a": "\u13aa\u0430", "k": "\u03ba", "e": "\u03b5\u0435", "l": "I1", "i": "l1",
}  # fmt: skip
"""Letters checked by eye, whatever the table says."""
SQUARES_AND_FLAGS = (0x1F130, 0x1F150, 0x1F170, 0x1F1E6, 0x24D0, 0xFF21, 0x1D41A)
SIGNS = (("aeiost", "4310$7"), ("aeilst", "@3!|5+"), ("ob", "08"), ("aicls", "^\u00a1\u00a2\u00a3\u00a7"))
INVISIBLE = "\u200b\u00ad\u034f\u2060\ufe0f\u3164\u0640\u2800\U000e0101"
HIDDEN: dict[str, Callable[[str], list[str]]] = {
    "plain": lambda word: [word, word.upper(), word.title(), f"Mia, {word}.", f"_{word}_"],
    "look-alikes": lambda word: each_letter(word, lambda one: LIKE.get(one, []) + (LIKE["il"] if one in "il" else [])),
    "as seen": lambda word: each_letter(word, lambda one: SEEN.get(one, "")),
    "squares and flags": lambda word: [styled(word, start) for start in SQUARES_AND_FLAGS],
    "accents": lambda word: each_letter(word, lambda one: [one + mark for mark in "\u0301\u0336\u20dd\u0903"]),
    "invisible": lambda word: each_letter(word, lambda one: [one + mark for mark in INVISIBLE]),
    "digits and signs": lambda word: [
        word.translate(str.maketrans(*pair)) + end
        for pair in SIGNS
        for end in ("", "!", "!!", "1", " now", "! now", "$", "...")
    ],
    "inside": lambda word: [sign.join(word) for sign in ("-", "_", ".", "*", "\ufffc", "\ue000")]
    + [word.replace(" ", sign) for sign in ("-", ", ", ". ", "\u2014", " \u200b ")],
    "spaced out": lambda word: [sign.join(word.replace(" ", "")) for sign in (" ", ".", "-", " - ")],
    "repeats": lambda word: each_letter(word, lambda one: [] if one == " " else [one * 2, one * 3, one * 40]),
}  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("how", HIDDEN)
def test_a_blocked_word_is_found_however_it_is_hidden(words: InstructionFilter, word: str, how: str) -> None:
    played = []
    for text in HIDDEN[how](word):
        try:
            played.append(words.read(text).text)
        except ProtocolError as error:
            assert error.code == "blocked"
    assert played == []


def test_what_players_say_is_played_beside_a_list_of_common_length(tmp_path: Path) -> None:
    kiosk = Path(__file__).parents[3] / "client/kiosk/animegamer_kiosk/files/block-list.txt"
    (tmp_path / "blocked.txt").write_text(kiosk.read_text("utf-8") + "naked\nhell\nshell\nslit\ntit\n")
    words = InstructionFilter(tmp_path / "blocked.txt")
    said = [
        json.loads(line).get("say", "")
        for path in (Path(__file__).parents[3] / "benchmarks/language").glob("*.jsonl")
        for line in path.read_text("utf-8").splitlines()
    ]
    blocked = []
    for text in filter(None, said):
        try:
            words.read(text)
        except ProtocolError as error:
            blocked += [text] if error.code == "blocked" else []
    assert len(said) > 1000 and blocked == []
    assert words.read("He'll sit on silt; she'll cull a tilt.")


def test_no_text_takes_long_to_search(words: InstructionFilter, tmp_path: Path) -> None:
    (tmp_path / "slow.txt").write_text("illicit\nlililil\nkill\n")
    slow = InstructionFilter(tmp_path / "slow.txt")
    began = time.process_time()
    for text in ("il" * 249, "l" * 499, "1!|I" * 124, "k" + "-" * 490, "k-i-" * 124, "i " * 249):
        with contextlib.suppress(ProtocolError):
            slow.read(text)
    assert time.process_time() - began < 1.0


def test_other_words_are_played_as_they_were_written(words: InstructionFilter) -> None:
    for text in ("Mia snakedances.", "Mia goes naked2.", "Tobo chops offal.", "caf\u00e9 \U0001f469\u200d\U0001f373"):
        assert words.read(text).text == text


def test_a_list_that_cannot_be_read_is_named_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"none\.txt: .*; found no such file or directory; give block_list a UTF-8 text file"
    ):
        InstructionFilter(tmp_path / "none.txt")


def test_with_an_allow_list_only_its_words_are_played(tmp_path: Path) -> None:
    path = tmp_path / "allowed.txt"
    path.write_text("# who\nTofi\nwaves gently\nin the meadow\n", encoding="utf-8")
    allowed = InstructionFilter(allow_list=path)
    assert allowed.read("Tofi waves, gently, in the MEADOW.").text == "Tofi waves, gently, in the MEADOW."
    for text in ("Tofi jumps.", "Tofi waves naked.", "t o f i waves", "Tofi waves \u738b."):
        with pytest.raises(ProtocolError, match="does not allow"):
            allowed.read(text)


def test_a_list_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for endless in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="the block-list cannot be read; found not a regular file"):
            InstructionFilter(endless)
