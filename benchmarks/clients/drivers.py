"""The clients' drivers, built the way a game ships them."""

from __future__ import annotations

import subprocess
import sys

from client.conformance.run import PYTHON
from client.conformance.suite import ROOT

BUILDS = ROOT / "build" / "benchmarks"
CLIENTS = ("native", "unity", "python", "aio")


def command(name: str) -> list[str]:
    """Builds and starts a client's driver: native as Release, C# by Mono. Tools: client/tools.py."""
    if name == "native":
        folder, driver = BUILDS / "native", BUILDS / "native" / "tests" / "driver"
        _run("cmake", "-S", ROOT / "client" / "native", "-B", folder, "-DCMAKE_BUILD_TYPE=Release")
        _run("cmake", "--build", folder, "--target", "driver", "--parallel", 2)
        return [str(driver)]
    if name == "unity":
        _run(sys.executable, ROOT / "client" / "unity" / "Tests~" / "build.py", BUILDS / "unity")
        return ["mono", str(BUILDS / "unity" / "AnimeGamer.Driver.exe"), "conform"]
    return [*PYTHON, *(["--aio"] if name == "aio" else [])]


def _run(*words: object) -> None:
    """Runs a build step; its output goes to standard error. Raises CalledProcessError."""
    subprocess.run([str(word) for word in words], stdout=sys.stderr, check=True)
