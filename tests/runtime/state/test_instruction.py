"""What is accepted as an instruction, and how it is normalized."""

from __future__ import annotations

import pytest

from animegamer_rt.errors import InstructionError
from animegamer_rt.state.game import MAX_INSTRUCTION_CHARACTERS, Instruction


@pytest.mark.parametrize("raw", ["", "\t\n  \r\n", " - ; , ", "\u200b"])
def test_instruction_without_words_is_refused(raw: str) -> None:
    with pytest.raises(InstructionError, match="empty"):
        Instruction.parse(raw)


def test_a_hundred_megabytes_are_refused_without_being_read() -> None:
    with pytest.raises(InstructionError, match="too long"):
        Instruction.parse("ab " * 33_000_000)


def test_longest_instruction_is_accepted_and_one_more_is_not() -> None:
    assert len(Instruction.parse("a" * MAX_INSTRUCTION_CHARACTERS).text) == MAX_INSTRUCTION_CHARACTERS
    with pytest.raises(InstructionError, match="found 501 characters"):
        Instruction.parse("a" * (MAX_INSTRUCTION_CHARACTERS + 1))


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ("Mia\x00waves", "control character; found U+0000"),
        ("Mia \x1b[2J waves", "control character; found U+001B"),
        ("Mia \u202eoops", "an invisible mark; found U+202E"),
        ("a\ud800b", "control character; found U+D800"),
        ("Mi\udce9", "not UTF-8 text; found byte 0xe9"),
    ],
)
def test_what_is_no_plain_text_is_refused_and_named(raw: str, named: str) -> None:
    with pytest.raises(InstructionError) as caught:
        Instruction.parse(raw)
    assert named in str(caught.value)


def test_instruction_in_any_script_is_accepted_as_it_is() -> None:
    for raw in ("ミアは空を飛ぶ", "Мия бежит по городу", "ميا تجري", "미아가 손을 흔든다", "Mia 🎏"):
        assert Instruction.parse(raw).text == raw


def test_text_is_composed_and_spaces_are_single() -> None:
    assert Instruction.parse("  Cafe\u0301 \t of\nMia ").text == "Caf\u00e9 of Mia"
