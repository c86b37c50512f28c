"""What the block-list finds, and what it lets by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from animegamer_rt.errors import ConfigError, ProtocolError
from animegamer_rt.serving.server.instruction_filter import InstructionFilter


@pytest.fixture
def words(tmp_path: Path) -> InstructionFilter:
    path = tmp_path / "blocked.txt"
    path.write_text("# not here\nnaked\nchop off\n\u200b\n\u2665\n", encoding="utf-8")
    return InstructionFilter(path)


@pytest.mark.parametrize(
    "texts",
    [
        ("Mia is NAKED.", "Tobo chop \u200b off it", "Mia \u2665 Tobo", "naked_"),
        (
            "na\u200bked",
            "na\u00adked",
            "na\u034fked",
            "n\u2060a\ufeffked",
            "na\ufe0fked",
            "na\U000e0101ked",
            "na\u3164ked",
        ),
        ("na\uffa0ked", "na\u180bked", "na\u17b4ked", "na\u2800ked", "na\u0336ked"),
        ("n\u0430k\u0435d", "\uff4eaked", "nak\u00e9d", "\u0578\u0430ked", "\U0001d427aked", "na\u03ba\u03b5d"),
        ("n a k e d", "n.a.k.e.d", "N-a-k-E-d now", "n4k3d", "n @ k e d", "ch0p 0ff"),
    ],
    ids=["plain", "invisible", "more invisible", "look-alikes", "spaces and signs"],
)
def test_a_blocked_word_is_found_however_it_is_hidden(words: InstructionFilter, texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(ProtocolError, match="does not allow") as error:
            words.read(text)
        assert error.value.code == "blocked"


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
