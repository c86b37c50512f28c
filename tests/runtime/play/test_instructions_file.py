"""Scripts of instructions: all lines are judged before the first is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from animegamer_rt.bundle.manifest import World
from animegamer_rt.errors import InstructionError
from animegamer_rt.play.instructions_file import example_script, read_script


def script(folder: Path, content: str | bytes) -> str:
    path = folder / "story.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_a_line_is_a_turn_and_blanks_and_comments_are_not(tmp_path: Path) -> None:
    source = script(tmp_path, "\ufeff# a day\r\nMia waves.\r\n\r\n   \n  Mia sleeps.  \n# end\n")
    assert read_script(source) == ["Mia waves.", "Mia sleeps."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n# only talk\n", "no instructions"),
        ("Mia waves.\n" + "x" * 10_000, "line 2: the instruction is too long"),
        ("Mia waves.\nMia \x07 rings.\n", "line 2: .*control character"),
        ("\u202eMia waves.\n", r"line 1: .*control character; found U\+202E"),
        ("<S>Mia</S><XX>?</XX>\n", "line 1: unknown story tag"),
        (b"Mia \xff waves.\n", "not UTF-8"),
    ],
)
def test_bad_script_is_refused_with_its_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(InstructionError, match=said):
        read_script(script(tmp_path, content))


def test_bundle_without_examples_asks_for_instructions() -> None:
    with pytest.raises(InstructionError, match="--instructions FILE"):
        example_script(World())
