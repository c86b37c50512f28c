"""Compiles the Unity package with Mono's C# compiler and runs its driver: what stands in for Unity in these tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "client" / "unity"
DRIVER = "AnimeGamer.Driver.exe"
TIMEOUT_S = 120
"""Longest wait for a program; only a failing test waits for so long."""


class MonoBuild:
    """The package's assemblies in a folder, and its driver program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        build = [sys.executable, str(PACKAGE / "Tests~" / "build.py"), str(folder)]
        done = subprocess.run(build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the driver."""
        return subprocess.Popen(
            ["mono", DRIVER, *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, says: str = "") -> list[str]:
        """The lines that the driver prints; says: its standard input. Fails unless it is content."""
        with self.start(*arguments) as process:
            try:
                out, _ = process.communicate(says, TIMEOUT_S)
            finally:
                process.kill()
        assert process.returncode == 0, out
        return out.splitlines()
