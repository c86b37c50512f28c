"""The wheels play in a clean environment without the checkout. Run by `make dist`; pip needs the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEEL_MIB = 30.0
TYPED = {
    "animegamer_rt": {"animegamer_rt", "animegamer_bench", "animegamer_export", "animegamer_kernels"},
    "animegamer_client": {"animegamer_client"},
    "animegamer_kiosk": {"animegamer_kiosk"},
}
"""The packages of each wheel; each has types."""
ENGINES = {
    "cpu": {"onnxruntime"},
    "cuda": {"onnxruntime-gpu"},
    "torch": {"torch"},
    "tensorrt-rtx": {"tensorrt-rtx-cu13"},
}
"""A way to play -> the engine libraries that pip gets for it. `tensorrt` has an index of its own: not resolved here."""


class CleanEnvironment:
    """A new venv, and an empty folder to run in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self._variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ANIMEGAMER_BUNDLES")}

    def run(self, program: str, *arguments: str) -> str:
        """What the program prints; it has no terminal. Raises CalledProcessError."""
        command = [str(self.programs / program), *arguments]
        options = {"check": True, "text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        return str(subprocess.run(command, env=self._variables, cwd=self.folder, **options).stdout)

    def install(self, *what: str) -> str:
        """Install with the tested versions, or only resolve (with --dry-run)."""
        return self.run("python", "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), *what)


def main(folder: Path) -> int:
    """Look into the wheels in `folder`; play a game, ask a server; resolve the other ways to play."""
    wheels = {name: next(folder.resolve().glob(f"{name}-*.whl")) for name in TYPED}
    for name, packages in TYPED.items():
        check_contents(wheels[name], packages)
    runtime, client, kiosk = wheels.values()
    with tempfile.TemporaryDirectory() as name:
        clean = CleanEnvironment(Path(name))
        for way, libraries in ENGINES.items():
            assert engines_of(clean, f"{runtime}[{way}]") == libraries, way
        clean.install(f"{runtime}[cpu]", str(client), str(kiosk))
        assert "write /etc/systemd" in clean.run("animegamer-rt", "kiosk", "install", "--dry-run", "--root", "machine")
        start = time.monotonic()
        clean.run("animegamer-rt", "play", "--seed", "7", "--out", "game")
        seconds = time.monotonic() - start
        turns = json.loads((clean.folder / "game" / "game.json").read_text(encoding="utf-8"))["turns"]
        assert turns and all((clean.folder / "game" / f"turn-{turn['turn']:03d}.mp4").stat().st_size for turn in turns)
        ask_a_server(clean)
        installed = json.loads(clean.run("python", "-m", "pip", "list", "--format", "json"))
        assert "torch" not in {package["name"] for package in installed}, "the CPU's install pulls torch"
        size = sum(path.lstat().st_size for path in (clean.folder / "venv").rglob("*") if path.is_file()) / 2**20
    print(f"{runtime.name}: {len(turns)} turns in {seconds:.1f} s; the environment has {size:.0f} MiB")
    return 0


def check_contents(wheel: Path, packages: set[str]) -> None:
    """The wheel's size, its licence, and the mark of types in each of its packages."""
    mib = wheel.stat().st_size / 2**20
    assert mib < WHEEL_MIB, f"{wheel.name} has {mib:.1f} MiB, at most {WHEEL_MIB:.0f}"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if name.endswith("/py.typed")} == packages, wheel.name
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names), f"no licence in {wheel.name}"
    assert "animegamer_rt" not in packages or "animegamer_rt/commit.txt" in names, "its records could name no commit"


def engines_of(clean: CleanEnvironment, requirement: str) -> set[str]:
    """The engine libraries among what pip would install."""
    report = clean.folder / "report.json"
    clean.install("--dry-run", "--ignore-installed", "--report", str(report), requirement)
    found = json.loads(report.read_text(encoding="utf-8"))["install"]
    names = {item["metadata"]["name"].replace("_", "-").lower() for item in found}
    known: Sequence[set[str]] = list(ENGINES.values())
    return names & set().union(*known)


def ask_a_server(clean: CleanEnvironment) -> None:
    """The client's own program finds the server ready."""
    command = [str(clean.programs / "animegamer-rt"), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=clean.folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            # A line of JSON with the ports comes first, for who started the server.
            address = next(line for line in server.stdout if line.startswith("ready ")).split()[1]
            said = clean.run("python", "-m", "animegamer_client", "status", address)
            assert "state     ready" in said, said
        finally:
            server.terminate()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
