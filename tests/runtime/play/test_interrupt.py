"""Ctrl-C in the middle of a turn: finished turns are kept, game.json is valid, the exit code says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import animegamer_rt.play.command
import animegamer_rt.play.game_folder
import fakes
from animegamer_rt.cli import main

SLOW_SECOND_TURN = """
import sys, time
import animegamer_rt.play.command, fakes

class Slow(fakes.FakeDenoiser):
    def start(self, *args):
        if self.motion_scopes:
            time.sleep(60)
        return super().start(*args)

animegamer_rt.play.command.open_engines = lambda *_: fakes.fake_engines(denoiser=Slow())
from animegamer_rt.cli import main
sys.exit(main(sys.argv[1:]))
"""


def options(folder: Path) -> list[str]:
    fakes.write_bundle(folder / "tiny")
    (folder / "story.txt").write_text("Mia waves.\nMia runs.\nMia sleeps.\n")
    bundle, script = folder / "tiny", folder / "story.txt"
    return ["play", "--bundle", str(bundle), "--instructions", str(script), "--out", str(folder / "out"), "--seed", "1"]


def turns(folder: Path) -> list[str]:
    return [turn["instruction"] for turn in json.loads((folder / "out" / "game.json").read_text())["turns"]]


def test_signal_to_a_running_process_ends_it_at_once_and_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_SECOND_TURN, *options(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_with_fakes())
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "out" / "turn-001.mp4").exists() or not turns(tmp_path):
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error
    assert "1 turn: clips and game.json in" in out
    assert turns(tmp_path) == ["Mia waves."]


def test_interrupt_while_a_finished_turn_is_written_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_clip = animegamer_rt.play.game_folder.write_clip

    def interrupted(*args: object, **named: object) -> None:
        signal.raise_signal(signal.SIGINT)
        write_clip(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(animegamer_rt.play.game_folder, "write_clip", interrupted)
    assert main(options(tmp_path)) == 130
    assert turns(tmp_path) == ["Mia waves."]
    assert "turn-001.mp4" in capfd.readouterr().out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _with_fakes() -> dict[str, str]:
    tests = str(Path(__file__).resolve().parents[2] / "fakes")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
