"""`python -m animegamer_client`: a game in the terminal or from stdin, and the server's status."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from client.conformance.fake_server import FakeServer

from animegamer_client.__main__ import main

PLAY = [sys.executable, "-m", "animegamer_client", "play"]


def play(server: FakeServer, monkeypatch: pytest.MonkeyPatch, lines: str, *options: object) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    return main(["play", server.address, "--timeout", "5", *map(str, options)])


def test_lines_of_stdin_are_played_and_kept(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert play(server, monkeypatch, "# a story\nMia waves.\n\nMia runs.\n", "--seed", 3, "--out", out) == 0
    assert sorted(path.name for path in out.glob("turn*")) == ["turn-001.mp4", "turn-002.mp4"]
    assert (out / "turn-001.mp4").read_bytes() == b"ftypmoof"
    shown = capsys.readouterr().out
    assert shown.count("stamina 50, social 55, entertainment 45") == 2 and f"{out / 'turn-002.mp4'}" in shown
    assert f"play {server.address} --resume token-1 --out {out}" in shown


def test_what_was_understood_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(FakeServer(minor=1)) as server:
        assert play(server, monkeypatch, "Mia waves.\n", "--out", tmp_path) == 0
    assert (
        "  understood: Mia in a raincoat and Tobo in everyday clothes run wildly, town, night\n"
        in capsys.readouterr().out
    )


def test_refused_line_is_told_and_the_next_one_played(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusals["turn"] = ["blocked"]
    assert play(server, monkeypatch, "Mia waves.\nMia runs.\n", "--out", tmp_path) == 1
    assert "error: not now; try later" in capsys.readouterr().out
    assert [turn["instruction"] for turn in server.games["token-1"].turns] == ["Mia runs."]


def test_missing_server_and_unknown_token_are_errors_with_advice(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(server, monkeypatch, "", "--resume", "nobody") == 2
    assert capsys.readouterr().err == "error: no such session\n"
    assert main(["status", "tcp://127.0.0.1:9", "--timeout", "0.5"]) == 2
    assert "nothing listens there" in capsys.readouterr().err
    assert main(["status", "nowhere"]) == 2
    assert "tcp://HOST:PORT" in capsys.readouterr().err


def test_line_that_is_no_utf8_is_refused_and_the_next_one_played(server: FakeServer, tmp_path: Path) -> None:
    lines = b"Mia \xff waves.\nMia runs.\n"
    done = subprocess.run([*PLAY, server.address, "--out", tmp_path], input=lines, capture_output=True)
    assert done.returncode == 1
    assert b"error: `turn` cannot be sent; found 'utf-8' codec" in done.stdout and b"use UTF-8 text" in done.stdout
    assert [turn["instruction"] for turn in server.games["token-1"].turns] == ["Mia runs."]


def test_a_terminal_without_the_letters_shows_others(server: FakeServer, tmp_path: Path) -> None:
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*PLAY, server.address, "--out", tmp_path / "é"],
        input="Mia runs.\n",
        capture_output=True,
        encoding="utf-8",
        env=plain,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_stdout_is_silent_and_a_full_disk_is_one_error_line(server: FakeServer) -> None:
    command = [sys.executable, "-m", "animegamer_client", "status", server.address, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert (process.communicate()[1], process.returncode) == ("", 1)
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr.startswith("error: the output cannot be written; found No space left on device;")
    assert done.stderr.count("\n") == 1 and done.returncode == 2


def test_folder_that_cannot_be_written_is_told_before_any_turn(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert play(server, monkeypatch, "Mia waves.\n", "--out", tmp_path / "file") == 2
    assert f"error: {tmp_path / 'file'}: cannot be written; found File exists" in capsys.readouterr().err
    assert not server.games


def test_one_key_option_without_the_other_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "tcp://127.0.0.1:5570", "--server-key", "x"]) == 2
    assert "server_key and client_keys go together" in capsys.readouterr().err


def test_status_is_shown_and_is_the_exit_code(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", server.address]) == 0
    assert "state     ready" in capsys.readouterr().out
    server.state = "degraded"
    assert main(["status", server.address, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["worker"]["pid"] == 4711


class Terminal:
    """The interactive game in a terminal of its own."""

    def __init__(self, *command: object) -> None:
        self._fd, tty = pty.openpty()
        self.process = subprocess.Popen([*map(str, command)], stdin=tty, stdout=tty, stderr=tty, start_new_session=True)
        os.close(tty)
        self.shown, self._seen = "", 0

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 40
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < until, self.shown
            if not select.select([self._fd], [], [], 1)[0]:
                continue
            try:
                self.shown += os.read(self._fd, 4096).decode(errors="replace")
            except OSError:
                break
        self._seen = self.shown.index(text, self._seen) + len(text)

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


def test_ctrl_c_cancels_the_turn_and_the_game_goes_on(server: FakeServer, tmp_path: Path) -> None:
    server.faults[3] = "hold"
    terminal = Terminal(*PLAY, server.address, "--timeout", 20, "--out", tmp_path)
    try:
        terminal.wait_for("turn 1 > ")
        terminal.type("Mia waves.\n")
        terminal.wait_for("step 1 of 2")
        terminal.interrupt()
        terminal.wait_for("stopped; the next turn is turn 1")
        terminal.wait_for("turn 1 > ")
        terminal.type("Mia runs.\n")
        terminal.wait_for("turn 2 > ")
        terminal.type("\x04")
        terminal.wait_for("--resume token-1")
        assert terminal.process.wait(30) == 0
    finally:
        terminal.close()
    assert [turn["instruction"] for turn in server.games["token-1"].turns] == ["Mia runs."]
    assert (tmp_path / "turn-001.mp4").exists()


def test_interrupted_script_cancels_its_turn_and_says_how_to_resume(server: FakeServer, tmp_path: Path) -> None:
    server.faults[3] = "hold"
    command = [*PLAY, server.address, "--timeout", "20", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write("Mia waves.\n")
    process.stdin.close()
    process.stdin = None
    assert process.stdout is not None
    while "motion level" not in process.stdout.readline():  # the turn has begun, so one cancel is enough
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume token-1" in shown
    assert server.kinds().count("cancel") == 1


def test_a_new_game_overwrites_no_clips_of_another(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".DS_Store").write_text("")
    assert play(server, monkeypatch, "a.\n", "--out", tmp_path) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "turn-001.mp4").write_text("mine")
    assert play(server, monkeypatch, "a.\n", "--out", tmp_path / "other") == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'other'} holds other files")
    assert (tmp_path / "other" / "turn-001.mp4").read_text() == "mine" and len(server.games) == 1
