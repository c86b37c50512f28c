"""The Unity package: compiled by Mono, its engine-free core played against live servers.

Unity itself is not here. What needs it is compiled against stubs of the API that it uses, and not run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from browser_socket import gateway_pid, web
from client.conformance.fake_server import FakeServer
from client.conformance.suite import Process
from live_server import LiveServer

import animegamer_rt
from animegamer_rt.cli import command_parser
from client import driver_stories as stories

PACKAGE = Path(__file__).parents[2] / "client" / "unity"
DRIVER = "AnimeGamer.Driver.exe"
PASSWORD = "correct-horse"
TIMEOUT_S = 120
"""Longest wait for a program; only a failing test waits for so long."""


class MonoBuild:
    """The package's assemblies in a folder, and its driver program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        build = [sys.executable, str(PACKAGE / "Tests~" / "build.py"), str(folder)]
        done = subprocess.run(build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout

    def run(self, *arguments: str, says: str = "", folder: str = "") -> list[str]:
        """The lines that the driver prints; says: its standard input. Fails unless it is content."""
        command = ["mono", folder + DRIVER, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, input=says, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.splitlines()


def program(name: str) -> ModuleType:
    """make_metas or make_scenes, whose folder's name is no package's."""
    spec = importlib.util.spec_from_file_location(name, PACKAGE / "Tests~" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scripts_of(text: str) -> list[str]:
    """Names of the package's scripts that a scene or prefab refers to by their GUIDs."""
    scripts = [path for path in program("make_metas").assets() if path.suffix == ".cs"]
    guids = {
        path.with_name(f"{path.name}.meta").read_text().split("guid: ")[1].split()[0]: path.stem for path in scripts
    }
    return [guids[guid] for guid in re.findall(r"m_Script: \{fileID: 11500000, guid: (\w+), type: 3\}", text)]


def gateway_of(server: LiveServer) -> str:
    """The address of its WebSocket."""
    return web(server).replace("http", "ws") + "ws"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MonoBuild:
    folder = Path(os.environ.get("ANIMEGAMER_CLIENT_BUILDS") or tmp_path_factory.mktemp("builds")) / "unity"
    return MonoBuild(folder)


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(bundle, tmp_path_factory.mktemp("state"), device="simulated:0.2", turns_per_minute=0) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def web_server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    state = tmp_path_factory.mktemp("web")
    with LiveServer(bundle, state, "--web", "0", device="simulated:0.2", turns_per_minute=0) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def locked_server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server whose gateway has the password PASSWORD."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "password").write_text(PASSWORD, encoding="utf-8")
    options = ("--web", "0", "--web-password", str(folder / "password"))
    with LiveServer(bundle, folder / "state", *options, device="simulated:0.2", turns_per_minute=0) as running:
        yield running.ready()


@pytest.fixture
def driver(build: MonoBuild) -> Iterator[Process]:
    with stories.started(["mono", DRIVER, "conform"], build.folder) as driver:
        yield driver


def must_be_refused(vector: dict[str, Any]) -> bool:
    """By this client: what no decoder may take, and answers whose fields it reads. An event without seq it ignores."""
    return vector["layer"] == "frames" or (vector["sender"] == "server" and "without seq" not in vector["name"])


def test_golden_messages_are_read_and_written_to_the_byte(build: MonoBuild) -> None:
    stories.check_golden(lambda lines: build.run("vectors", says=lines), must_be_refused)


class TestDriver(stories.DriverStories):
    """The stories of all clients."""


def test_the_program_of_the_manual_plays_a_turn_without_unity(build: MonoBuild, server: LiveServer) -> None:
    said = subprocess.run(
        ["mono", "turn.exe", stories.address_of(server)], cwd=build.folder, stdout=subprocess.PIPE, text=True
    )
    assert re.fullmatch(r"stamina \d+\nturn 1 took [\d.]+ s\n", said.stdout)


def test_a_gateway_is_reached_by_websocket_too(build: MonoBuild, web_server: LiveServer) -> None:
    at = gateway_of(web_server)
    play = ["mono", "turn.exe"]
    said = subprocess.run([*play, at], cwd=build.folder, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    assert "turn 1 took" in said.stdout
    with stories.started(["mono", DRIVER, "conform"], build.folder) as driver:
        assert driver.ask(f"new {at} 60") == "ok"
        assert driver.ask("open 3") == "ok 0"
        assert driver.ask("turn a Mirel waves.").startswith("done turns=1 seq=0-22 pictures=1.0,")
        assert driver.ask(f"new {at}-nowhere 0.5") == "ok"
        assert driver.ask("connect").startswith("error timed_out ")


def test_a_gateways_password_lets_in_who_gives_it(driver: Process, locked_server: LiveServer) -> None:
    at = gateway_of(locked_server)
    driver.ask(f"new {at} 60 {PASSWORD}")
    assert driver.ask("open 3") == "ok 0"
    driver.ask(f"new {at} 0.5")
    assert re.match("error timed_out .* password", driver.ask("connect"))
    driver.ask(f"new {at} 60 battery")
    assert driver.ask("connect").startswith("error not_allowed ")
    assert driver.ask(f"new {stories.address_of(locked_server)} 1 any").startswith("error bad_argument a Password ")


def test_a_webgl_build_calls_nothing_that_a_browser_lacks(build: MonoBuild) -> None:
    assert build.run("calls", folder="web/") == [f"AnimeGamer.{name}: ok" for name in ("Core", "Unity", "Samples")]


def test_a_webgl_build_calls_the_pages_functions() -> None:
    library = (PACKAGE / "Runtime/Core/AnimeGamer.jslib").read_text(encoding="utf-8")
    there = re.findall(r"^  (AnimeGamer\w+): function \((.*)\)", library, re.MULTILINE)
    declared = re.compile(r"static (?:extern )?\w+ (AnimeGamer\w+)\((.*?)\)")
    called = declared.findall((PACKAGE / "Runtime/Core/BrowserSocket.cs").read_text(encoding="utf-8"))
    assert [(name, each.count(",")) for name, each in called] == [(name, each.count(",")) for name, each in there]
    played = declared.findall((PACKAGE / "Tests~/Browser/BrowserSocket.cs").read_text(encoding="utf-8"))
    assert played == called, "the tests' class stands for the one of a build"


def test_a_webgl_build_plays_through_a_pages_websocket(build: MonoBuild, web_server: LiveServer) -> None:
    """C# without threads calls the package's JavaScript in node; the gateway is killed in a turn."""
    option = "--experimental-websocket"
    if subprocess.run(["node", option, "-e", ""], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("node 20 or later is needed, which has WebSockets")
    page, library = PACKAGE / "Tests~/Browser/page.js", PACKAGE / "Runtime/Core/AnimeGamer.jslib"
    arguments = f'{option} --no-warnings "{page}" "{library}"'
    address = gateway_of(web_server)
    command = ["mono", f"web/{DRIVER}", address, "ws://127.0.0.1:1/ws", "node", arguments]
    with subprocess.Popen(command, cwd=build.folder, stdout=subprocess.PIPE, text=True) as playing:
        assert playing.stdout is not None
        said = []
        for line in playing.stdout:
            said.append(line)
            if line == "in a turn\n":
                time.sleep(0.3)
                os.kill(gateway_pid(web_server), signal.SIGKILL)
    assert (said[0], said[-1]) == ("in a turn\n", "played in a browser\n"), said


def test_the_code_of_the_readme_compiles(build: MonoBuild) -> None:
    (code,) = re.findall(r"```csharp\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (build.folder / "readme.cs").write_text(code, encoding="utf-8")
    references = [f"-r:{name}" for name in ("AnimeGamer.Core.dll", "AnimeGamer.Unity.dll", "UnityStubs.dll")]
    subprocess.run(["mcs", "-target:library", "-warnaserror", *references, "readme.cs"], cwd=build.folder, check=True)


def test_a_server_of_the_programs_own_is_played_and_ends_with_it(
    build: MonoBuild, bundle: Path, tmp_path: Path
) -> None:
    options = f"--bundle {bundle} --state-dir {tmp_path} --device simulated:0.2"
    (said,) = build.run("launch", sys.executable, "-m animegamer_rt", options)
    assert said == "launched, then ended"
    (said,) = build.run("launch", sys.executable, "-m animegamer_rt", "--device no-such-device")
    assert said.startswith("server_process: ") and "no-such-device" in said


def test_clips_are_shown_as_in_every_client(build: MonoBuild) -> None:
    stories.check_display(["mono", DRIVER, "conform"], build.folder)


def test_the_scenarios_of_the_conformance_suite_pass(build: MonoBuild) -> None:
    stories.check_conformance(["mono", DRIVER, "conform"], build.folder)


def test_code_is_unloaded_twenty_times_without_a_thread_or_socket_left(build: MonoBuild, server: LiveServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = build.run("domains", stories.address_of(server), f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert said == ["unloaded 20 times, 13 turns"]


def test_components_play_in_a_game_loop_of_stubs(build: MonoBuild, server: LiveServer) -> None:
    refused, played = build.run("engine", stories.address_of(server))
    assert played == "two plays of one game"
    assert refused == "warning: AnimeGamer: a turn is running; wait for its end, or call SayInstead", (
        "nobody may listen"
    )


def test_a_session_replays_undoes_branches_and_is_cancelled(build: MonoBuild, server: LiveServer) -> None:
    assert build.run("engine-past", stories.address_of(server)) == ["replayed, undone, branched, cancelled"]


def test_a_component_starts_its_server_again_when_it_has_died(build: MonoBuild, bundle: Path, tmp_path: Path) -> None:
    options = f"--bundle {bundle} --device simulated:0.1"
    (said,) = build.run("engine-server", sys.executable, "-m animegamer_rt", options, str(tmp_path))
    assert said == "a server that died was started again"


def test_a_component_starts_from_a_picture_and_offers_turns(build: MonoBuild) -> None:
    server = FakeServer(minor=2)
    server.offers = ["Mia sits"]
    try:
        assert build.run("picture", server.address) == ["from a picture"]
    finally:
        server.close()
    assert server.kinds().count("close") == 1, "the game that it opened first is closed"


def test_the_assemblies_hold_nothing_that_il2cpp_cannot_build(build: MonoBuild) -> None:
    said = build.run("assemblies", *(f"AnimeGamer.{name}.dll" for name in ("Core", "Unity", "Samples")))
    assert len(said) == 3


def test_the_scene_and_the_prefab_hold_what_is_there() -> None:
    """They are as generated; each reference leads to an object of the file, or to a script of the package by GUID."""
    for path, text in program("make_scenes").files().items():
        assert path.read_text(encoding="utf-8") == text, "run client/unity/Tests~/make_scenes.py"
        objects = re.findall(r"^--- !u!\d+ &(\d+)$", text, re.MULTILINE)
        assert len(set(objects)) == len(objects)
        assert set(re.findall(r"\{fileID: (\d+)\}", text)) <= {"0", *objects}
        assert scripts_of(text) == ["AnimeGamerSession", path.stem]


def test_the_readmes_four_steps_lead_to_a_picture(
    build: MonoBuild, server: LiveServer, locked_server: LiveServer
) -> None:
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    manifest = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert f"Unity {manifest['unity']}" in readme
    listed = readme.split("## From nothing to a turn")[1].split("\n\n")[1]
    start, add, window, scene = re.findall(r"^\d\. (.*(?:\n   .*)*)", listed, re.MULTILINE)
    (command,) = re.findall(r"animegamer-rt (serve --device\s+\S+)`", start)
    command_parser("serve").parse_args(command.split())
    for version in (f"?path=/client/unity#v{manifest['version']}`", f"#upm/{manifest['version']}`"):
        assert version in add
    assert re.findall(r"(\w+ > \w+): (\w+), then (\w+)", window) == [("Window > AnimeGamer", "Connect", "Say")]
    ((sample, name, said),) = re.findall(r'sample "([^"]+)".* scene `([^`]+)`.* type "([^"]+)"', scene)
    (folder,) = [each["path"] for each in manifest["samples"] if each["displayName"] == sample]
    scripts = scripts_of((PACKAGE / folder / f"{name}.unity").read_text(encoding="utf-8"))
    for address, password in ((stories.address_of(server), ""), (gateway_of(locked_server), PASSWORD)):
        played = build.run("first-steps", address, password, "Window/AnimeGamer", said, *scripts)
        assert played[-1] == "a picture in the window, and one in the scene"


def test_the_package_is_whole() -> None:
    manifest = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert manifest["version"] == animegamer_rt.__version__
    assert [(PACKAGE / sample["path"]).is_dir() for sample in manifest["samples"]] == [True] * 2
    metas = {path: path.with_name(f"{path.name}.meta") for path in program("make_metas").assets()}
    assert [path for path, meta in metas.items() if not meta.is_file()] == [], "run client/unity/Tests~/make_metas.py"
    guids = [re.findall(r"^guid: ([0-9a-f]{32})$", meta.read_text(), re.MULTILINE)[0] for meta in metas.values()]
    assert len(set(guids)) == len(guids)
    names = {json.loads(path.read_text())["name"] for path in metas if path.suffix == ".asmdef"}
    for path in (path for path in metas if path.suffix == ".asmdef"):
        rules = json.loads(path.read_text())
        assert {name for name in rules.get("references", []) if name.startswith("AnimeGamer")} <= names, path
        assert "excludePlatforms" not in rules, "WebGL builds have the samples, too"
