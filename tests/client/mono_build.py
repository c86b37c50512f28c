"""Compiles the Unity package with Mono's C# compiler and runs its driver: what stands in for Unity in these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "client" / "unity"
CORE, UNITY, EDITOR, STUBS, DRIVER, SAMPLES = (
    f"AnimeGamer.{name}.dll" for name in ("Core", "Unity", "Editor", "Stubs", "Driver", "Samples")
)
TIMEOUT_S = 120
"""Longest wait for a program; only a failing test waits for so long."""


class MonoBuild:
    """The package's assemblies in a folder, and its driver program."""

    def __init__(self, folder: Path) -> None:
        if not (shutil.which("mcs") and shutil.which("mono")):
            raise RuntimeError("mcs and mono were not found; on Debian: apt-get install mono-mcs mono-runtime")
        self.folder = folder
        self._compile(CORE, (PACKAGE / "Runtime" / "Core").glob("*.cs"))
        self._compile("AnimeGamer.Driver.exe", (PACKAGE / "Tests~" / "Driver").glob("*.cs"), CORE)

    def _compile(self, name: str, sources: Iterable[Path], *references: str) -> None:
        """Compile with warnings as errors, in the C# that Unity 2022.3 and 6 both take."""
        options = ["-langversion:7", "-warn:4", "-warnaserror", "-debug-", f"-out:{name}"]
        options += [f"-r:{reference}" for reference in references] + (
            ["-target:library"] if name[-4:] == ".dll" else []
        )
        done = subprocess.run(
            ["mcs", *options, *sorted(map(str, sources))], cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the driver."""
        return subprocess.Popen(
            ["mono", "AnimeGamer.Driver.exe", *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MONO_THREADS_PER_CPU": "4"},
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
