"""The folder of the client's `play`: clips of its own game are replaced and deleted, and nothing else ever is."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from client.conformance.fake_server import FakeServer

from animegamer_client.__main__ import main


def play(server: FakeServer, monkeypatch: pytest.MonkeyPatch, lines: str, *options: object) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    return main(["play", server.address, "--timeout", "5", *map(str, options)])


@pytest.mark.parametrize(
    "files",
    [
        {"turn-001.mp4": "mine", "contact-sheet.png": "mine"},
        {"game.json": "a game of animegamer-rt play", "turn-001.mp4": "its clip"},
        {"notes.txt": "mine"},
        {"animegamer-client.json": "{}", "turn-001.mp4": "mine"},
        {"animegamer-client.json": "[" * 100_000},
    ],
    ids=lambda files: "+".join(files),
)
def test_a_folder_of_others_is_refused_and_left_alone(
    server: FakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, str],
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert play(server, monkeypatch, "a.\n", "--out", tmp_path) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files
    assert server.games["token-1"].turns == []


def test_another_game_of_the_same_program_is_refused(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(server, monkeypatch, "a.\nb.\n", "--out", tmp_path / "first") == 0
    assert play(server, monkeypatch, "a.\n", "--out", tmp_path / "second") == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()}
    assert play(server, monkeypatch, ":rewind 0\n", "--resume", "token-1", "--out", tmp_path / "second") == 2
    assert "holds another game" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()} == before


def test_a_rewind_deletes_no_file_that_the_player_put_there(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    assert play(server, monkeypatch, "a.\nb.\n", "--out", out) == 0
    assert play(server, monkeypatch, "c.\n", "--out", other, "--resume", "token-1") == 0
    (other / "turn-001.mp4").write_bytes(b"mine")
    (other / "turn-003.mp4").write_bytes(b"cut by me")
    assert play(server, monkeypatch, ":rewind 0\nd.\ne.\n", "--out", other, "--resume", "token-1") == 1
    assert "turn-001.mp4 is not this game's" in capsys.readouterr().out
    assert (other / "turn-001.mp4").read_bytes() == b"mine" and (other / "turn-003.mp4").read_bytes() == b"cut by me"


def test_two_processes_do_not_share_a_folder(server: FakeServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "animegamer_client", "play", server.address, "--out", str(tmp_path / "out")]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    while "so far, in" not in first.stdout.readline():
        assert first.poll() is None
    second = subprocess.run(command, input="a.\n", capture_output=True, text=True)
    first.communicate("a.\n")
    assert (first.returncode, second.returncode) == (0, 2)
    assert "another process is writing to" in second.stderr
