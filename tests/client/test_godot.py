"""The Godot addon, run by Debian's Godot 3 in a window of Xvfb: its codec, games against live servers, its demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_messages as golden
import pytest
from client.conformance import run as conformance
from live_server import LiveServer
from PIL import Image

import fakes
from client.test_unity import in_hex

PROJECT = Path(__file__).parents[2] / "client" / "godot"
GODOT_DRIVER = [sys.executable, str(PROJECT / "tests" / "conform.py")]
TIMEOUT_S = 120
"""Longest wait for a program; only a failing test waits for so long."""


class Godot:
    """Runs scenes of the project in a window that nobody sees."""

    def __init__(self, home: Path, display: str) -> None:
        self.environment = {"HOME": str(home), "XDG_DATA_HOME": str(home), "DISPLAY": display}

    def start(self, scene: str, **environment: object) -> subprocess.Popen[str]:
        """Start a scene; environment: variables without their prefix ANIMEGAMER_."""
        return subprocess.Popen(
            ["godot3-runner", "--path", str(PROJECT), "--audio-driver", "Dummy", f"res://{scene}.tscn"],
            env={
                **os.environ,
                **self.environment,
                **{f"ANIMEGAMER_{name}": str(value) for name, value in environment.items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def driver(self, scenario: str, port: int = 0, timeout_s: float = 60, **more: object) -> subprocess.Popen[str]:
        """Start a scenario of tests/driver.gd."""
        return self.start("tests/driver", SCENARIO=scenario, PORT=port, TIMEOUT=timeout_s, **more)

    def answers(self, process: subprocess.Popen[str]) -> list[str]:
        """What a driver says until its end. Fails unless it is content and no line of its scripts failed."""
        with process:
            try:
                out, _ = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
        assert process.returncode == 0 and "SCRIPT ERROR" not in out, out
        return [line.removeprefix("ag: ") for line in out.splitlines() if line.startswith("ag: ")]


@pytest.fixture(scope="module")
def godot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Godot]:
    if not (shutil.which("godot3-runner") and shutil.which("Xvfb")):
        raise RuntimeError("godot3-runner and Xvfb were not found; on Debian: apt-get install godot3-runner xvfb")
    read, write = os.pipe()
    options = ("-displayfd", str(write), "-screen", "0", "800x600x24", "-nolisten", "tcp")
    screen = subprocess.Popen(["Xvfb", *options], pass_fds=(write,), stderr=subprocess.DEVNULL)
    try:
        os.close(write)
        with os.fdopen(read) as number:
            yield Godot(tmp_path_factory.mktemp("home"), f":{number.readline().strip()}")
    finally:
        screen.terminate()
        screen.wait()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny").folder


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--turns-per-minute", "0")
    with LiveServer(bundle, tmp_path_factory.mktemp("state"), *options, device="simulated:0.2") as running:
        yield running.ready()


def must_be_refused(vector: dict[str, Any]) -> bool:
    """By this client: what no decoder may take (but a client's own limits), and pictures that are not as they say."""
    server = vector["sender"] == "server"
    return vector["layer"] == "frames" and (server or vector["code"] != "too_large") or "a frame" in vector["name"]


def test_golden_messages_are_read_and_written_to_the_byte(godot: Godot, tmp_path: Path) -> None:
    vectors = golden.MESSAGES + [each for each in golden.REFUSED if must_be_refused(each)]
    lines = [" ".join(in_hex(frame) or "." for frame in each["frames"]) or "-" for each in vectors]
    file = tmp_path / "vectors"
    file.write_text("\n".join(lines))
    answers = godot.answers(godot.driver("vectors", VECTORS=file))
    assert len(answers) == len(vectors)
    for vector, answer in zip(vectors, answers, strict=True):
        if "code" in vector:
            assert answer == f"refused {vector['code']}", vector["name"]
        elif vector["canonical"]:
            assert answer == f"read {golden.frames(vector)[1].hex()}", vector["name"]
        else:
            assert answer.startswith("read "), vector["name"]


def test_a_game_is_played_cancelled_rewound_resumed_and_closed(godot: Godot, server: LiveServer) -> None:
    assert godot.answers(godot.driver("play", server.port)) == [
        "a turn",
        "say instead",
        "rewound while paused",
        "resumed",
        "closed: session_closed",
    ]


def test_an_error_that_no_script_listens_to_is_a_warning(godot: Godot) -> None:
    with godot.driver("unheard") as driver:
        said, _ = driver.communicate(timeout=TIMEOUT_S)
    assert "AnimeGamer: the instruction is empty; say what happens next" in said


def test_the_scenarios_of_the_conformance_suite_pass(godot: Godot, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in godot.environment.items():
        monkeypatch.setenv(name, value)
    assert conformance.play("godot", GODOT_DRIVER) == conformance.recorded()["godot"]


def test_the_demo_plays_three_turns_and_shows_the_last_picture(
    godot: Godot, server: LiveServer, tmp_path: Path
) -> None:
    file = tmp_path / "window.png"
    with godot.start("demo/three_turns", PORT=server.port, SCREENSHOT=file) as demo:
        try:
            said, _ = demo.communicate(timeout=TIMEOUT_S)
        finally:
            demo.kill()
    assert demo.returncode == 0 and "turn 3 took" in said and "SCRIPT ERROR" not in said, said
    with Image.open(file) as window:
        assert window.size == (640, 480)
        colours = window.convert("RGB").crop((120, 40, 520, 340)).getcolors(1 << 20)
    assert colours is not None and len(colours) > 20, "no picture is in the middle of the window"
