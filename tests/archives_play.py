"""The clients' archives play in clean folders, against a live server that runs no model. Run by `make clients-dist`.

A wheel is played by wheel_plays.py.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "fakes")]
from client.tools import CLIENTS  # noqa: E402
from live_server import LiveServer  # noqa: E402

import animegamer_rt  # noqa: E402
import fakes  # noqa: E402


def run(*command: object, cwd: Path) -> str:
    """What a command prints that must succeed."""
    return subprocess.run(list(map(str, command)), cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def play_unity(archive: Path, folder: Path, address: str) -> None:
    """Compile the package's core and the program of its manual, and play a turn."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
    package = folder / "package"
    run("mcs", "-out:turn.exe", *package.glob("Documentation~/*.cs"), *package.glob("Runtime/Core/*.cs"), cwd=folder)
    assert "turn 1 took" in run("mono", "turn.exe", address, cwd=folder)


def play_unreal(archive: Path, folder: Path, address: str) -> None:
    """Compile the plugin against the stubs, and play a game in their loop."""
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(folder)
    tests = ROOT / "client" / "unreal" / "tests"
    options = ("-DCMAKE_CXX_COMPILER=clang++", f"-DPLUGIN={folder / 'AnimeGamer'}")
    run("cmake", "-S", tests, "-B", "build", *options, cwd=folder)
    run("cmake", "--build", "build", "--target", "driver", "--parallel", 2, cwd=folder)
    assert "second play" in run(folder / "build" / "driver", address, cwd=folder)


def play_native(archive: Path, folder: Path, address: str) -> None:
    """Link the example with each library that the archive has, and play a turn."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
    example = ROOT / "client" / "native" / "examples" / "play_turn.cpp"
    for config in folder.glob("*/*/lib/pkgconfig"):
        flags = run("env", f"PKG_CONFIG_PATH={config}", "pkg-config", "--cflags", "--libs", "animegamer", cwd=folder)
        run("c++", "-std=c++17", example, "-o", "game", *flags.split(), f"-Wl,-rpath,{config.parent}", cwd=folder)
        run(folder / "game", address, "Mia waves.", cwd=folder)
        assert (folder / "frame-16.bmp").is_file()


PLAYS = {
    f"com.animegamer.client-{animegamer_rt.__version__}.tgz": play_unity,
    f"animegamer-unreal-{animegamer_rt.__version__}.zip": play_unreal,
    f"animegamer-native-{animegamer_rt.__version__}-linux-*.tar.gz": play_native,
}
"""The archives of a release, by name: their version is the runtime's."""
PLAYED = ("C and C++", "C#, Unity", "Unreal")
"""Whose tools that takes, by their titles in client/tools.py."""


def main(dist: Path) -> None:
    """Play every archive in this folder. Exits with an error if a tool for that is missing."""
    if lacking := [client.lack for client in CLIENTS if client.title in PLAYED and client.missing]:
        sys.exit("\n".join(f"error: {each}" for each in lacking))
    with tempfile.TemporaryDirectory() as name:
        bundle = fakes.write_bundle(Path(name) / "bundle").folder
        with LiveServer(bundle, Path(name) / "state", device="simulated:0.2", turns_per_minute=0) as server:
            address = f"tcp://127.0.0.1:{server.ready().port}"
            for n, (pattern, play) in enumerate(PLAYS.items()):
                (archive,) = dist.resolve().glob(pattern)
                (folder := Path(name) / str(n)).mkdir()
                play(archive, folder, address)
                print(f"{archive.name} plays")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
