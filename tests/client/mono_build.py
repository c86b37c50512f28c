"""Compiles the Unity package with Mono's C# compiler and runs its driver: what stands in for Unity in these tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "client" / "unity"
DRIVER = "AnimeGamer.Driver.exe"
TIMEOUT_S = 120
"""Longest wait for a program; only a failing test waits for so long."""


class MonoBuild:
    """The package's assemblies in a folder, and its driver program."""

    def __init__(self, folder: Path) -> None:
        if not (shutil.which("mcs") and shutil.which("mono")):
            raise RuntimeError("mcs and mono were not found; on Debian: apt-get install mono-mcs mono-runtime")
        self.folder = folder
        core, unity, stubs = "AnimeGamer.Core.dll", "AnimeGamer.Unity.dll", "UnityStubs.dll"
        samples = "AnimeGamer.Samples.dll"
        self._compile(core, "Runtime/Core/*.cs")
        self._compile(stubs, "Tests~/Stubs/*.cs")
        self._compile(unity, "Runtime/Unity/*.cs", core, stubs)
        self._compile("AnimeGamer.Editor.dll", "Editor/*.cs", core, unity, stubs)
        self._compile("AnimeGamer.Tests.dll", "Tests/Editor/*.cs", core, unity, stubs)
        self._compile(samples, "Samples~/*/*.cs", core, unity, stubs)
        self._compile(DRIVER, "Tests~/Driver/*.cs", core, unity, stubs, samples)

    def _compile(self, name: str, sources: str, *references: str) -> None:
        """Compile with warnings as errors, in a C# that Unity 2022.3 and 6 both take."""
        options = ["-langversion:7", "-warn:4", "-warnaserror", f"-out:{name}", "-define:UNITY_EDITOR"]
        options += ["-define:ENABLE_LEGACY_INPUT_MANAGER", *(f"-r:{reference}" for reference in references)]
        options += ["-target:library"] if name.endswith(".dll") else []
        files = sorted(map(str, PACKAGE.glob(sources)))
        done = subprocess.run(["mcs", *options, *files], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

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
