"""The Unreal plugin without Unreal: compiled against stubs of the API that it uses, and played in a loop of stubs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from live_server import LiveServer

import animegamer_rt
import fakes

PLUGIN = Path(__file__).parents[2] / "client" / "unreal"


def run(*command: object) -> str:
    """Run a command that must succeed; returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_turns_are_played_cancelled_and_resumed_and_no_shown_texture_is_written(tmp_path: Path) -> None:
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")
    run("cmake", "-S", PLUGIN / "tests", "-B", tmp_path / "build", *options)
    run("cmake", "--build", tmp_path / "build", "--parallel", 2)
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", "--turns-per-minute", "0", device="simulated:0.2") as server:
        said = run(tmp_path / "build" / "driver", f"tcp://127.0.0.1:{server.ready().port}")
    assert said.splitlines() == ["three turns", "say instead", "next level", "second play"]


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
