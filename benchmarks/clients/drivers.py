"""The clients' drivers, built as a game ships them, and a screen for the one that needs it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from client.conformance.run import PYTHON
from client.conformance.suite import ROOT

BUILDS = ROOT / "build" / "benchmarks"
CLIENTS = ("native", "unity", "godot", "python", "aio")


def command(name: str) -> list[str]:
    """Starts a client's driver, which is built first: native as Release, C# by Mono. Tools: client/tools.py."""
    if name == "native":
        folder, driver = BUILDS / "native", BUILDS / "native" / "tests" / "driver"
        _run("cmake", "-S", ROOT / "client" / "native", "-B", folder, "-DCMAKE_BUILD_TYPE=Release")
        _run("cmake", "--build", folder, "--target", "driver", "--parallel", 2)
        return [str(driver)]
    if name == "unity":
        _run(sys.executable, ROOT / "client" / "unity" / "Tests~" / "build.py", BUILDS / "unity")
        return ["mono", str(BUILDS / "unity" / "AnimeGamer.Driver.exe"), "conform"]
    if name == "godot":
        return [sys.executable, str(ROOT / "client" / "godot" / "tests" / "conform.py")]
    return [*PYTHON, *(["--aio"] if name == "aio" else [])]


def _run(*words: object) -> None:
    """A step of a build; what it says goes to the standard error. Raises CalledProcessError."""
    subprocess.run([str(word) for word in words], stdout=sys.stderr, check=True)


@contextlib.contextmanager
def screen() -> Iterator[None]:
    """Xvfb, for Godot's window. It is no child of the driver, as its time and memory are not the client's."""
    read, write = os.pipe()
    options = ("-displayfd", str(write), "-screen", "0", "800x600x24", "-nolisten", "tcp")
    with subprocess.Popen(["Xvfb", *options], pass_fds=(write,), stderr=subprocess.DEVNULL) as process:
        os.close(write)
        try:
            with os.fdopen(read) as number:
                os.environ["DISPLAY"] = f":{number.readline().strip()}"
            yield
        finally:
            process.terminate()
