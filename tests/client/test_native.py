"""The native client as its user gets it: built without a warning, held to the golden bytes and hostile servers, played.

`make clients` names the folder to build in, and runs the slow tests too: games on a live server, the package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import golden_messages as golden
import pytest
from client.conformance import run as conformance
from client.conformance.suite import Process
from live_server import LiveServer
from PIL import Image

import archives_play
from animegamer_rt.bundle.loader import open_bundle
from client import driver_stories as stories

BUILDS = os.environ.get("ANIMEGAMER_CLIENT_BUILDS")
NATIVE = Path(__file__).parents[2] / "client" / "native"
ENGINE_FLAGS = ("-std=c++20", "-Wall", "-Werror", "-Wshadow", "-Wundef", "-fno-rtti", "-fsyntax-only")
"""Of Unreal's build tool for Clang."""
RUSTC = shutil.which("rustc") or shutil.which(Path.home() / ".cargo" / "bin" / "rustc")
PICTURE = NATIVE.parent / "web" / "attract.jpg"


def run(*command: object, cwd: Path, says: str = "") -> str:
    """Run a command that must succeed; returns its output. says: its standard input."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, input=says)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(BUILDS or tmp_path_factory.mktemp("builds")) / "native"
    folder.mkdir(parents=True, exist_ok=True)
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON")
    run("cmake", "-S", NATIVE, "-B", folder, *options, cwd=folder)
    run("cmake", "--build", folder, "--parallel", 2, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(bundle, tmp_path_factory.mktemp("state"), device="simulated:0.2", turns_per_minute=0) as running:
        yield running.ready()


@pytest.fixture
def driver(build: Path) -> Iterator[Process]:
    with stories.started([str(build / "tests" / "driver")]) as driver:
        yield driver


def check_decoder(build: Path) -> None:
    """Golden messages and broken ones, which ZMTP can carry; then messages of a server with changed bytes."""
    stories.check_golden(
        lambda lines: run(build / "tests" / "vectors", cwd=build, says=lines).splitlines(),
        lambda vector: vector["layer"] == "frames" and bool(vector["frames"]),
    )
    lines = [stories.golden_line(each) for each in golden.MESSAGES if each["sender"] == "server"]
    run(build / "tests" / "decoder_fuzz", cwd=build, says="\n".join(lines))


def test_golden_bytes_and_changed_bytes(build: Path) -> None:
    check_decoder(build)


@pytest.mark.skipif(not BUILDS, reason="builds a program three ways: `make clients` runs it")
def test_the_package_is_found_by_cmake_and_pkg_config(build: Path) -> None:
    run("ctest", "--output-on-failure", cwd=build)


@pytest.fixture(scope="module")
def shared(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shared library, linked from the static one's objects."""
    folder = tmp_path_factory.mktemp("shared")
    whole = ("-Wl,--whole-archive", build / "libanimegamer.a", "-Wl,--no-whole-archive")
    run("c++", "-shared", "-o", folder / "libanimegamer.so", *whole, "-pthread", cwd=folder)
    return folder


def test_programs_of_an_older_and_a_newer_header_are_not_written_over(shared: Path, server: LiveServer) -> None:
    link = (f"-I{NATIVE / 'include'}", f"-L{shared}", "-lanimegamer", f"-Wl,-rpath,{shared}")
    for program, sources in archives_play.write_programs_of_other_headers(NATIVE / "include", shared).items():
        run("cc", *sources, "-o", program, *link, cwd=shared)
        run(shared / program, stories.address_of(server), cwd=shared)


@pytest.mark.skipif(RUSTC is None, reason="no rustc; on Debian: apt-get install rustc")
def test_the_example_in_rust_plays_a_turn(shared: Path, server: LiveServer) -> None:
    link = ("-L", shared, "-l", "animegamer", "-C", f"link-arg=-Wl,-rpath,{shared}")
    run(RUSTC, "-D", "warnings", NATIVE / "examples" / "play_turn.rs", *link, cwd=shared)
    said = run(shared / "play_turn", stories.address_of(server), "Mia waves.", cwd=shared).splitlines()
    assert said == [f"picture {n} of 17: 24 x 16" for n in range(1, 18)] + ["turn 1 is done"]
    refused = subprocess.run([shared / "play_turn", "nowhere"], capture_output=True, text=True)
    assert refused.returncode == 1 and "give tcp://HOST:PORT" in refused.stderr


@pytest.mark.skipif(
    shutil.which("clang++") is None, reason="no Clang, which engines compile with; apt-get install clang"
)
def test_the_header_compiles_as_engines_compile_it(tmp_path: Path) -> None:
    """The C++ header without exceptions, as in many games; test_unreal.py compiles the library so."""
    header = tmp_path / "header.cpp"
    header.write_text('#include <animegamer.hpp>\nint main() { return ag::Client("tcp://127.0.0.1:1") ? 0 : 1; }\n')
    run("clang++", *ENGINE_FLAGS, "-fno-exceptions", f"-I{NATIVE / 'include'}", header, cwd=tmp_path)


def test_what_only_this_interface_has(build: Path, server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANIMEGAMER_ADDRESS", stories.address_of(server))
    run(build / "tests" / "game_test", cwd=build)


class TestDriver(stories.DriverStories):
    """The stories of all clients."""


@pytest.mark.skipif(not BUILDS, reason="builds the client twice more, for minutes: `make clients` runs it")
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_sanitizers_report_nothing(sanitizers: str, server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(BUILDS or "") / f"native-{sanitizers.replace(',', '-')}"
    options = (f"-DANIMEGAMER_SANITIZE={sanitizers}", "-DCMAKE_UNITY_BUILD=ON")
    run("cmake", "-S", NATIVE, "-B", folder, *options, cwd=NATIVE)
    run("cmake", "--build", folder, "--parallel", 2, cwd=folder)
    check_decoder(folder)
    monkeypatch.setenv("ANIMEGAMER_ADDRESS", stories.address_of(server))
    run(folder / "tests" / "game_test", cwd=folder)
    with stories.started([str(folder / "tests" / "driver")]) as driver:
        stories.DriverStories().test_a_game_is_that_of_the_python_client(driver, server)
        stories.DriverStories().test_a_turn_is_whole_over_a_bad_wire(driver)
    assert conformance.play([str(folder / "tests" / "driver")]) == {}


def test_clips_are_shown_as_in_every_client(build: Path) -> None:
    stories.check_display([str(build / "tests" / "driver")])


def test_the_scenarios_of_the_conformance_suite_pass(build: Path) -> None:
    stories.check_conformance([str(build / "tests" / "driver")])


def test_example_plays_a_turn_and_writes_its_frames(build: Path, server: LiveServer, tmp_path: Path) -> None:
    said = run(build / "play_turn", stories.address_of(server), "Mia waves.", cwd=tmp_path)
    assert re.search(r"^stamina \d+, social \d+, entertainment \d+$", said, re.MULTILINE)
    assert "turn 1 took" in said
    pictures = sorted(tmp_path.glob("frame-*.bmp"))
    assert len(pictures) == 17
    for picture in pictures:
        with Image.open(picture) as image:
            image.load()
            assert (image.size, image.mode) == ((24, 16), "RGB")


def test_a_game_from_a_picture_is_that_of_the_python_client(build: Path, tmp_path: Path) -> None:
    drivers = Process([str(build / "tests" / "driver")]), Process(conformance.PYTHON)
    options = ("--plan", "fast", "--threads", "1")
    with LiveServer(open_bundle("pocket").folder, tmp_path / "state", *options, device="cpu") as server:
        address = stories.address_of(server.ready())
        for driver in drivers:
            assert driver.ask(f"new {address} 60") == "ok"
        picture = shutil.copy(PICTURE, tmp_path / "start.jpg")  # drivers take no path with a space
        game = f"open-picture 7 {picture} gently wave", "turn a Tofi waves."
        native, python = ([driver.ask(line) for line in game] for driver in drivers)
    for driver in drivers:
        driver.close()
    assert native == python
    assert re.match("ok 0 [A-Z]", native[0]) and native[1].startswith("done turns=1 seq=0-"), native
