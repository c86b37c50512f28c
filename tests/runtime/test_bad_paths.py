"""Paths and values that cannot be meant, and a system that refuses: one line on stderr and exit code 2 each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from tiny_towers import add_towers

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.cli import main

RT = [sys.executable, "-m", "animegamer_rt"]


def run(*command: str) -> tuple[int, str]:
    """The exit code of a command in this process, and whether argparse or the command said it."""
    try:
        return main(list(command)), "command"
    except SystemExit as stopped:
        assert isinstance(stopped.code, int)
        return stopped.code, "argparse"


PATHS = {"empty": "", "no such user": "~nosuchuser/out", "name": "n" * 300, "long path": "a/" * 3000, "NUL": "a\0b"}
TAKE_A_PATH = {
    "play": ("play", "--out"),
    "play, picture": ("play", "--motion", "wave", "--image"),
    "play, instructions": ("play", "--instructions"),
    "bench": ("bench", "run", "--results"),
    "selftest": ("selftest", "--out"),
    "keys": ("keys", "new", "mia", "--keys"),
    "info": ("info",),
    "bundle": ("play", "--bundle"),
    "serve": ("serve", "--state-dir"),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("command", TAKE_A_PATH.values(), ids=TAKE_A_PATH)
def test_a_path_that_names_nothing_is_one_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    path: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*command, path)[0] == 2
    said = capsys.readouterr().err
    assert "error: " in said.splitlines()[-1] and "Traceback" not in said
    assert not list(tmp_path.iterdir())


NUMBERS = ["²", "٣", "１", "1_0", " 1", "+1", "--3", "1e2", "0x1", "", "9" * 30, "9" * 5000, "nan"]


@pytest.mark.parametrize("number", NUMBERS, ids=ascii)
@pytest.mark.parametrize(
    "command",
    [
        ("play", "--seed"),
        ("bench", "run", "--turns"),
        ("play", "--threads"),
        ("serve", "--workers"),
        ("quantize", "pocket", "--precision", "predictor=int4-qdq", "--out", "x", "--calibration-turns"),
        ("verify", "pocket", "--turns"),
        ("search-plans", "--turns"),
        ("export", "--out", "x", "--random-weights"),
    ],
    ids=" ".join,
)
def test_a_number_is_ascii_digits(command: tuple[str, ...], number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command[:-1], f"{command[-1]}={number}") == (2, "argparse")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [("bench", "run", "--bundle"), ("play", "--plan"), ("verify", "x", "--against")])
def test_an_empty_value_is_no_default(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command, "") == (2, "argparse")
    assert "is a shell variable unset?" in capsys.readouterr().err


def test_a_picture_whose_name_is_not_utf8_is_recorded(bundle: Bundle, tmp_path: Path) -> None:
    picture = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"mia-\xff.png"))
    Image.new("RGB", (144, 96)).save(picture)
    lines = ["--bundle", str(add_towers(bundle).folder), "--out", str(tmp_path / "out"), "--motion", "wave"]
    done = subprocess.run([*RT, "play", *lines, "--image", picture], stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert r"mia-\\udcff.png" in (tmp_path / "out" / "game.json").read_text(encoding="utf-8")


@pytest.mark.skipif(sys.version_info[:3] == (3, 13, 0), reason="this Python imports no numpy in a folder that is gone")
@pytest.mark.parametrize("command", ["info pocket", "play --out a", "selftest"])
def test_a_current_folder_that_is_gone_is_named_as_the_cause(tmp_path: Path, command: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir({str(gone)!r}); from animegamer_rt.__main__ import main; raise SystemExit(main())"
    done = subprocess.run([sys.executable, "-c", program, *command.split()], cwd=gone, capture_output=True, text=True)
    if command == "info pocket":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith("error: the current folder was deleted; ")


@pytest.mark.parametrize("command", ["--version", "play --help", "info pocket --json"])
def test_a_full_device_is_one_line_whatever_is_printed(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*RT, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr.startswith("error: the output cannot be written") and done.stderr.count("\n") == 1
    assert done.returncode == 2


@pytest.mark.parametrize("mebibytes", [250, 400])  # with less, OpenBLAS ends the process itself
def test_little_memory_is_no_traceback(mebibytes: int) -> None:
    shell = f"ulimit -v {mebibytes * 1024}; exec {sys.executable} -m animegamer_rt selftest --out /dev/null/x"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    assert "Traceback" not in done.stderr and done.returncode != 1


def test_an_endless_file_of_instructions_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--bundle", str(folder), "--instructions", "/dev/zero"]) == 2
    assert "the instructions are too long" in capsys.readouterr().err
