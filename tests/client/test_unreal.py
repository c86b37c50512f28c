"""The Unreal plugin without Unreal: compiled against stubs of the API that it uses, and played in a loop of stubs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zmq
import zmq.auth
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import PNG
from live_server import LiveServer

import animegamer_rt
import fakes
from client import driver_stories as stories

PLUGIN = Path(__file__).parents[2] / "client" / "unreal"


def run(*command: object) -> str:
    """Run a command that must succeed; returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    keys = f"-DANIMEGAMER_CURVE={'ON' if stories.WITH_KEYS else 'OFF'}"
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", keys)
    run("cmake", "-S", PLUGIN / "tests", "-B", folder, *options)
    run("cmake", "--build", folder, "--parallel", 2)
    return folder


def test_games_are_played_and_what_is_announced_is_drawn(build: Path, tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.2", turns_per_minute=0) as server:
        said = run(build / "driver", f"tcp://127.0.0.1:{server.ready().port}")
    parts = ["two turns", "say instead", "list, branch, export, replay, rewind", "next level", "second play"]
    assert said.splitlines() == parts


def test_each_of_ten_nodes_hears_its_own_clip(build: Path, tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.2", turns_per_minute=0) as server:
        said = run(build / "driver", f"tcp://127.0.0.1:{server.ready().port}", "chain")
    assert said.splitlines() == ["a chain of 10, 5 objects", "looped, paused, faded"], "and no ended node is kept"


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
    stories.check_conformance([str(build / "conform")])


def test_settings_with_keys_play_or_say_what_is_missing(build: Path, tmp_path: Path) -> None:
    zmq.auth.create_certificates(tmp_path, "client")
    public, secret = zmq.curve_keypair()
    server = FakeServer(secret_key=secret)
    try:
        said = run(build / "driver", server.address, tmp_path, public.decode())
    finally:
        server.close()
    without = 'no_keys: build the plugin with libsodium: see its README.md, "A server with keys"\n'
    assert said == ("with keys\n" if stories.WITH_KEYS else without)


def test_the_packed_plugin_holds_the_native_client(tmp_path: Path) -> None:
    module = tmp_path / "AnimeGamer" / "Source" / "AnimeGamerNative"
    sodium = module.parent / "ThirdParty" / "libsodium"
    assert "without libsodium" in run(sys.executable, PLUGIN / "pack.py", tmp_path)
    sodium.mkdir(parents=True)
    (module / "Private" / "of_an_older_version.cpp").touch()
    assert "with libsodium" in run(sys.executable, PLUGIN / "pack.py", tmp_path)
    assert sodium.is_dir() and not (module / "Private" / "of_an_older_version.cpp").exists()
    assert (module / "Public" / "animegamer.h").is_file() and (module / "Private" / "client.cpp").is_file()
    plugin = (tmp_path / "AnimeGamer" / "AnimeGamer.uplugin").read_text(encoding="utf-8")
    assert f'"VersionName": "{animegamer_rt.__version__}"' in plugin
    (tmp_path / "mine" / "AnimeGamer").mkdir(parents=True)
    done = subprocess.run([sys.executable, PLUGIN / "pack.py", tmp_path / "mine"], capture_output=True, text=True)
    assert done.returncode == 1 and "is not this plugin" in done.stderr
    nowhere = tmp_path / "no-project" / "Plugins"
    done = subprocess.run([sys.executable, PLUGIN / "pack.py", nowhere], capture_output=True, text=True)
    assert done.returncode == 1 and f"there is no folder {nowhere.parent}" in done.stderr
    assert not nowhere.parent.exists()


@pytest.mark.skipif(
    shutil.which("mcs") is None, reason="no C# compiler; on Debian: apt-get install mono-mcs mono-runtime"
)
def test_the_build_rules_link_a_libsodium_that_is_in_the_plugin(tmp_path: Path) -> None:
    run(sys.executable, PLUGIN / "pack.py", tmp_path)
    source = tmp_path / "AnimeGamer" / "Source"
    rules = tmp_path / "rules.exe"
    run("mcs", f"-out:{rules}", PLUGIN / "tests" / "stubs" / "UnrealBuildTool.cs", *source.glob("*/*.Build.cs"))
    ask = ("mono", rules, source / "AnimeGamerNative")
    assert run(*ask, "Linux") == ""
    sodium = source / "ThirdParty" / "libsodium"
    (sodium / "include").mkdir(parents=True)
    (sodium / "include" / "sodium.h").touch()
    for platform, name in {"Win64": "libsodium.lib", "Linux": "libsodium.a", "Mac": "libsodium.a"}.items():
        library = sodium / "lib" / platform / name
        missing = subprocess.run([*map(str, ask), platform], capture_output=True, text=True)
        assert missing.returncode == 1 and f"{library} is missing" in missing.stdout
        library.parent.mkdir(parents=True)
        library.touch()
        said = run(*ask, platform).splitlines()
        expected = [
            f"include {sodium / 'include'}",
            f"library {library}",
            "define ANIMEGAMER_CURVE=1",
            "define SODIUM_STATIC=1",
        ]
        assert [line for line in said if "ANIMEGAMER_BUILD" not in line] == expected
