"""`export` and `quantize`: what lies in their folders and is not theirs is as it was after the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from animegamer_rt.cli import main

COMMANDS = (
    ("export", "--random-weights", "1", "--size", "tiny"),
    ("quantize", "pocket", "--precision", "predictor=int8-qdq"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("folder", ["new", ".new.unfinished"])
def test_a_bundle_is_not_written_among_files_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], folder: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "mine.txt").write_text("mine")
    assert main([*command, "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(tmp_path / folder) in said
    assert [path.name for path in tmp_path.rglob("*")] == [folder, "mine.txt"]
    assert (tmp_path / folder / "mine.txt").read_text() == "mine"
