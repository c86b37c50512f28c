"""Compiles the package and its driver program with Mono's C# compiler: python client/unity/Tests~/build.py FOLDER.

The core needs nothing else. What uses Unity is compiled against stubs of the API that it uses. Warnings are errors.
What is in web/ is compiled as for a WebGL build, and calls a node process in place of the browser.
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
    f"web/{STUBS}": ("Tests~/Stubs/*.cs", ()),
    "web/Externs.dll": ("Runtime/Core/BrowserSocket.cs", ()),
    "web/Browser.dll": ("Tests~/Browser/BrowserSocket.cs", ()),
    f"web/{CORE}": ("Runtime/Core/*.cs", ("web/Browser.dll",)),
    f"web/{UNITY}": ("Runtime/Unity/*.cs", (f"web/{CORE}", STUBS)),
    f"web/{SAMPLES}": ("Samples~/*/*.cs", (f"web/{CORE}", f"web/{UNITY}", STUBS)),
    "web/AnimeGamer.Driver.exe": (
        "Tests~/Browser/Program.cs",
        ("web/Browser.dll", f"web/{CORE}", f"web/{UNITY}", f"web/{SAMPLES}", STUBS),
    ),
}
"""Each assembly's sources and the assemblies that it refers to, in the order to build."""


def main(folder: Path) -> int:
    """Returns the exit code."""
    if not (shutil.which("mcs") and shutil.which("mono")):
        print("error: mcs and mono were not found; on Debian: apt-get install mono-mcs mono-runtime", file=sys.stderr)
        return 1
    (folder / "web").mkdir(parents=True, exist_ok=True)
    for name, (sources, references) in ASSEMBLIES.items():
        # A C# that Unity 2021.3 to 6 take.
        platform = "UNITY_WEBGL" if name.startswith("web/") else "UNITY_EDITOR"
        options = ["-langversion:7", "-warn:4", "-warnaserror", f"-define:{platform};ENABLE_LEGACY_INPUT_MANAGER"]
        options += [f"-out:{name}", *(f"-r:{reference}" for reference in references)]
        options += ["-target:library"] if name.endswith(".dll") else []
        files = [path for path in PACKAGE.glob(sources) if name != f"web/{CORE}" or path.name != "BrowserSocket.cs"]
        done = subprocess.run(["mcs", *options, *sorted(map(str, files))], cwd=folder)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: expected one argument, the folder to build in")
    sys.exit(main(Path(sys.argv[1])))
