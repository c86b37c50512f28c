"""`export` and `quantize`: what lies in their folders and is not theirs is as it was after the command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from animegamer_rt.bundle.loader import load
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


def test_a_bundle_is_written_to_the_empty_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "new").symlink_to("disk")
    assert main([*COMMANDS[1], "--out", str(tmp_path / "new")]) == 0
    assert load(tmp_path / "disk").manifest.parts["predictor"].precision == "int8-qdq"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "new"]
    assert (tmp_path / "new").is_symlink()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_mounted_disk_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "new")
    assert main([*command, "--out", str(tmp_path / "new")]) == 2
    assert f"write to {tmp_path / 'new' / 'bundle'}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
