"""Files that a command did not make: each is as it was after the command, which says so in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.bundle.files import lock_folder
from animegamer_rt.cli import main

RECORD: dict[str, Any] = {"bundle": "tiny", "plan": "exact", "seed": 1}


@pytest.fixture
def story(tmp_path: Path) -> str:
    (tmp_path / "story.txt").write_text("Mia waves.\n")
    return str(tmp_path / "story.txt")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert main([*map(str, command)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    "files",
    [
        {"turn-001.mp4": "mine", "contact-sheet.png": "mine"},
        {"holiday.mp4": "mine"},
        {".hidden": "mine"},
        {"game.json": json.dumps({"turns": [1, 2, 3]}), "turn-001.mp4": "mine"},
        {"game.json": json.dumps({"turns": []})},
        {"game.json": json.dumps({**RECORD, "turns": [{"turn": 1}]}), "turn-001.mp4": "mine"},
        {"game.json": json.dumps({**RECORD, "turns": []}), "turn-001.mp4": "mine"},
        {"game.json": json.dumps({**RECORD, "turns": []}), "contact-sheet.png": "mine"},
        {"game.json": "[" * 100_000},
        {"animegamer-client.json": "{}", "turn-001.mp4": "a game of the client"},
    ],
    ids=lambda files: "+".join(files),
)
def test_a_game_is_not_written_among_files_that_are_not_a_games(
    folder: Path, story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name, text in files.items():
        (out / name).write_text(text)
    before = contents(out)
    said = refused(capsys, "play", "--bundle", folder, "--instructions", story, "--out", out)
    assert "--out" in said and str(out) in said
    assert contents(out) == before


def test_an_earlier_game_stays_until_a_turn_of_the_new_one_is_whole(
    folder: Path, story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = ("play", "--bundle", str(folder), "--instructions", story, "--out", str(tmp_path / "out"))
    assert main([*play, "--seed", "1"]) == 0
    before = contents(tmp_path / "out")
    capsys.readouterr()
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
        assert "not enough space on the disk" in refused(capsys, *play, "--seed", "2")
    assert contents(tmp_path / "out") == before
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert main([*play, "--seed", "2"]) == 0
    after = contents(tmp_path / "out")
    assert json.loads(after["game.json"])["seed"] == 2 and after["notes.txt"] == b"mine"
    assert after.keys() == {*before, "notes.txt"}


def test_a_second_game_in_a_folder_is_refused_while_the_first_is_played(
    folder: Path, story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    with lock_folder(tmp_path / "out"):
        said = refused(capsys, "play", "--bundle", folder, "--instructions", story, "--out", tmp_path / "out")
    assert "another process is writing here" in said
    assert contents(tmp_path / "out") == {}


def test_two_games_at_once_without_a_folder_get_one_each(folder: Path, story: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "animegamer_rt", "play", "--bundle", str(folder), "--instructions", story]
    games = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [game.wait() for game in games] == [0, 0]
    for folder in ("game-001", "game-002"):
        assert len(json.loads((tmp_path / "games" / folder / "game.json").read_text())["turns"]) == 1


@pytest.mark.parametrize("text", ["mine", "{}", '{"device": "cpu"}', "[1]"])
def test_a_report_replaces_reports(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "mine.json").write_text(text)
    assert "mine.json" in refused(capsys, "selftest", "--out", tmp_path / "mine.json", "--bundle", folder)
    assert (tmp_path / "mine.json").read_text() == text


def test_keys_are_added_to_a_folder_and_replace_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["keys", "new", "mia", "--keys", str(tmp_path)]) == 0
    before = contents(tmp_path)
    assert before.keys() == {"notes.txt", "mia.key", "mia.key_secret"}
    (tmp_path / "bo.key_secret").symlink_to("nowhere")
    capsys.readouterr()
    for name in ("mia", "bo"):
        assert "the key pair exists already" in refused(capsys, "keys", "new", name, "--keys", tmp_path)
    assert contents(tmp_path) == before
