"""The native client as its user gets it: built without a warning, held to the golden bytes and hostile servers, played.

`make clients` names the folder to build in, and runs the slow tests too: games on a live server, the package.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zmq.auth
from client.conformance import run as conformance
from client.conformance.suite import Process
from live_server import LiveServer
from PIL import Image

import fakes
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.serving.server import curve_keys
from client.with_keys import WITH_KEYS, check_conformance

BUILDS = os.environ.get("ANIMEGAMER_CLIENT_BUILDS")
NATIVE = Path(__file__).parents[2] / "client" / "native"
SERVE = f"{shlex.quote(sys.executable)} -m animegamer_rt serve"
"""Starts a server, as a line for the shell."""

PICTURE = NATIVE.parent / "web" / "attract.jpg"


def run(*command: object, cwd: Path) -> str:
    """Run a command that must succeed; returns its output."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(BUILDS or tmp_path_factory.mktemp("builds")) / "native"
    folder.mkdir(parents=True, exist_ok=True)
    serve = f"-DANIMEGAMER_SERVE={SERVE if BUILDS else ''}"
    keys = f"-DANIMEGAMER_CURVE={'ON' if WITH_KEYS else 'OFF'}"
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", serve, keys)
    run("cmake", "-S", NATIVE, "-B", folder, *options, cwd=folder)
    run("cmake", "--build", folder, "--parallel", 2, cwd=folder)
    return folder


def test_golden_bytes_hostile_servers_and_changed_bytes(build: Path) -> None:
    run("ctest", "--parallel", 3, "--output-on-failure", *(() if BUILDS else ("--exclude-regex", "package")), cwd=build)


@pytest.mark.skipif(not BUILDS, reason="builds the client twice more, for minutes: `make clients` runs it")
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_sanitizers_report_nothing(sanitizers: str) -> None:
    folder = Path(BUILDS or "") / f"native-{sanitizers.replace(',', '-')}"
    options = (f"-DANIMEGAMER_SANITIZE={sanitizers}", f"-DANIMEGAMER_SERVE={SERVE}")
    run("cmake", "-S", NATIVE, "-B", folder, *options, cwd=NATIVE)
    run("cmake", "--build", folder, "--parallel", 2, cwd=folder)
    run("ctest", "--parallel", 2, "--output-on-failure", cwd=folder)
    played = conformance.play("native", [str(folder / "tests" / "driver")], lacks={"curve": "built without keys"})
    assert set(played.values()) == {"yes", "no: built without keys"}


def test_the_scenarios_of_the_conformance_suite_pass(build: Path) -> None:
    check_conformance("native", [str(build / "tests" / "driver")])


def test_example_plays_a_turn_and_writes_its_frames(build: Path, tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state") as server:
        said = run(build / "play_turn", f"tcp://127.0.0.1:{server.ready().port}", "Mia waves.", cwd=tmp_path)
    assert re.search(r"^stamina \d+, social \d+, entertainment \d+$", said, re.MULTILINE)
    assert "turn 1 took" in said
    pictures = sorted(tmp_path.glob("frame-*.png"))
    assert len(pictures) == 17
    for picture in pictures:
        with Image.open(picture) as image:
            image.load()
            assert (image.size, image.mode) == ((24, 16), "RGBA")


def test_a_game_from_a_picture_with_keys_is_that_of_the_python_client(build: Path, tmp_path: Path) -> None:
    options, keys = ["--plan", "fast", "--threads", "1"], ""
    if WITH_KEYS:
        server_key, _ = curve_keys.new("server", tmp_path / "keys")
        _, friend = curve_keys.new("friend", tmp_path / "allow")
        keys = f" server_key={zmq.auth.load_certificate(server_key)[0].decode()} client_keys={friend}"
        options += ["--keys", str(tmp_path / "keys"), "--authorized-keys", str(tmp_path / "allow")]
    drivers = Process([str(build / "tests" / "driver")]), Process(conformance.PYTHON)
    with LiveServer(open_bundle("pocket").folder, tmp_path / "state", *options, device="cpu") as server:
        new = f"new tcp://127.0.0.1:{server.ready().port} 60{keys}"
        for driver in drivers:
            assert driver.ask(new) == "ok"
        picture = shutil.copy(PICTURE, tmp_path / "start.jpg")  # drivers take no path with a space
        game = f"open-picture 7 {picture} gently wave", "turn a Tofi waves."
        native, python = ([driver.ask(line) for line in game] for driver in drivers)
    for driver in drivers:
        driver.close()
    assert native == python
    assert re.match("ok 0 [A-Z]", native[0]) and native[1].startswith("done turns=1 seq=0-"), native
