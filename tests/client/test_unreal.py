"""The Unreal plugin without Unreal: compiled against stubs of the API that it uses, and played in a loop of stubs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from client.conformance import run as conformance
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import PNG
from live_server import LiveServer

import animegamer_rt
import fakes

PLUGIN = Path(__file__).parents[2] / "client" / "unreal"


def run(*command: object) -> str:
    """Run a command that must succeed; returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")
    run("cmake", "-S", PLUGIN / "tests", "-B", folder, *options)
    run("cmake", "--build", folder, "--parallel", 2)
    return folder


def test_games_are_played_and_no_shown_texture_is_written(build: Path, tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", "--turns-per-minute", "0", device="simulated:0.2") as server:
        said = run(build / "driver", f"tcp://127.0.0.1:{server.ready().port}")
    parts = ["two turns", "say instead", "list, branch, export, replay, rewind", "next level", "second play"]
    assert said.splitlines() == parts


def test_a_game_starts_from_a_picture_and_shows_what_is_ready(build: Path, tmp_path: Path) -> None:
    (tmp_path / "start.png").write_bytes(PNG)
    server = FakeServer(minor=2)
    server.offers = ["Mia sits."]
    try:
        assert run(build / "driver", server.address, tmp_path / "start.png") == "from a picture\n"
    finally:
        server.close()
    assert server.kinds().count("close") == 1, "the game that was asked for before the picture is closed"


def test_the_scenarios_of_the_conformance_suite_pass(build: Path) -> None:
    assert conformance.play("unreal", [str(build / "conform")]) == conformance.recorded()["unreal"]


def test_the_packed_plugin_holds_the_native_client(tmp_path: Path) -> None:
    for _ in range(2):  # the second replaces the first
        run(sys.executable, PLUGIN / "pack.py", tmp_path)
    module = tmp_path / "AnimeGamer" / "Source" / "AnimeGamerNative"
    assert (module / "Public" / "animegamer.h").is_file() and (module / "Private" / "client.cpp").is_file()
    plugin = (tmp_path / "AnimeGamer" / "AnimeGamer.uplugin").read_text(encoding="utf-8")
    assert f'"VersionName": "{animegamer_rt.__version__}"' in plugin
    (tmp_path / "mine" / "AnimeGamer").mkdir(parents=True)
    done = subprocess.run([sys.executable, PLUGIN / "pack.py", tmp_path / "mine"], capture_output=True, text=True)
    assert done.returncode == 1 and "is not this plugin" in done.stderr
