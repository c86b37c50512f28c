"""Compiles the package and its driver program with Mono's C# compiler: python client/unity/Tests~/build.py FOLDER.

The core needs nothing else. What uses Unity is compiled against stubs of the API that it uses. Warnings are errors.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CORE, UNITY, STUBS = "AnimeGamer.Core.dll", "AnimeGamer.Unity.dll", "UnityStubs.dll"
SAMPLES, EDITOR = "AnimeGamer.Samples.dll", "AnimeGamer.Editor.dll"
ASSEMBLIES: dict[str, tuple[str, tuple[str, ...]]] = {
    CORE: ("Runtime/Core/*.cs", ()),
    "turn.exe": ("Documentation~/*.cs", (CORE,)),
    STUBS: ("Tests~/Stubs/*.cs", ()),
    UNITY: ("Runtime/Unity/*.cs", (CORE, STUBS)),
    EDITOR: ("Editor/*.cs", (CORE, UNITY, STUBS)),
    SAMPLES: ("Samples~/*/*.cs", (CORE, UNITY, STUBS)),
    "AnimeGamer.Driver.exe": ("Tests~/Driver/*.cs", (CORE, UNITY, STUBS, SAMPLES, EDITOR)),
}
"""Each assembly's sources and the assemblies that it refers to, in the order to build."""


def main(folder: Path) -> int:
    """Returns the exit code."""
    if not (shutil.which("mcs") and shutil.which("mono")):
        print("error: mcs and mono were not found; on Debian: apt-get install mono-mcs mono-runtime", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for name, (sources, references) in ASSEMBLIES.items():
        # A C# that Unity 2021.3 to 6 take.
        options = ["-langversion:7", "-warn:4", "-warnaserror", "-define:UNITY_EDITOR;ENABLE_LEGACY_INPUT_MANAGER"]
        options += [f"-out:{name}", *(f"-r:{reference}" for reference in references)]
        options += ["-target:library"] if name.endswith(".dll") else []
        done = subprocess.run(["mcs", *options, *sorted(map(str, PACKAGE.glob(sources)))], cwd=folder)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: expected one argument, the folder to build in")
    sys.exit(main(Path(sys.argv[1])))
