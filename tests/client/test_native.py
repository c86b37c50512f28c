"""The native client as its user gets it: built without a warning, held to the golden bytes and hostile servers, played.

`make clients` names the folder to build in, and runs the slow tests too: games on a live server, the package.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from client.conformance import run as conformance
from live_server import LiveServer
from PIL import Image

import fakes

BUILDS = os.environ.get("ANIMEGAMER_CLIENT_BUILDS")
NATIVE = Path(__file__).parents[2] / "client" / "native"


def run(*command: object, cwd: Path) -> str:
    """Run a command that must succeed; returns its output."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(BUILDS or tmp_path_factory.mktemp("builds")) / "native"
    folder.mkdir(parents=True, exist_ok=True)
    serve = f"-DANIMEGAMER_SERVE={sys.executable} -m animegamer_rt serve" if BUILDS else "-DANIMEGAMER_SERVE="
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", serve)
    run("cmake", "-S", NATIVE, "-B", folder, *options, cwd=folder)
    run("cmake", "--build", folder, "--parallel", 2, cwd=folder)
    return folder


def test_golden_bytes_hostile_servers_and_changed_bytes(build: Path) -> None:
    run("ctest", "--parallel", 3, "--output-on-failure", *(() if BUILDS else ("--exclude-regex", "package")), cwd=build)


def test_the_scenarios_of_the_conformance_suite_pass(build: Path) -> None:
    assert conformance.play("native", [str(build / "tests" / "driver")]) == conformance.recorded()["native"]


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
