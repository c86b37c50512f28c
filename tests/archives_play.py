"""The clients' archives play in clean folders, against a live server that runs no model. Run by `make clients-dist`.

A wheel is played by wheel_plays.py.
"""

from __future__ import annotations

import re
import shutil
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
    """Link the example with each library that the archive has, and play a turn; on Linux, Windows' by Wine."""
    shutil.unpack_archive(archive, folder)
    windows = archive.suffix == ".zip"
    compilers, start = (MINGW, "wine") if windows else (("cc", "c++"), "env")
    for package in folder.glob("*/*/lib"):
        config = f"PKG_CONFIG_PATH={package / 'pkgconfig'}"
        flags = run("env", config, "pkg-config", "--cflags", "--libs", "animegamer", cwd=folder).split()
        programs = write_programs_of_other_headers(package.parent / "include", folder)
        programs["game.exe"] = [str(NATIVE / "examples" / "play_turn.cpp"), "-std=c++17"]
        if windows:
            flags.insert(0, "-static")  # what the compiler brings: Windows has none of it
        for library in package.parent.glob("bin/*.dll"):
            check_dll(library, package.parent / "include" / "animegamer.h")
            shutil.copy(library, folder)
            flags[1:] = ["-Wl,-Bdynamic", *flags[1:], "-Wl,-Bstatic"]
        for program, sources in programs.items():
            compiler = compilers["-std=c++17" in sources]
            run(compiler, *sources, "-o", program, *flags, f"-Wl,-rpath,{package}", cwd=folder)
            if not shutil.which(start):
                print(f"{archive.name}: {program} is linked, and not run: {start} not found")
                continue
            run(start, folder / program, address, "Mia waves.", cwd=folder)
        assert not shutil.which(start) or (folder / "frame-16.bmp").is_file()


def write_programs_of_other_headers(include: Path, folder: Path) -> dict[str, list[str]]:
    """Headers of an older and a newer library of the same interface; the programs to compile with them, and how."""
    header = (include / "animegamer.h").read_text(encoding="utf-8")
    newer = re.sub(r"^\} (ag_options|ag_game_info);", r"    int of_tomorrow[4];\n\g<0>", header, flags=re.MULTILINE)
    older = re.sub(r"\n    int64_t running_turn;.*", "", header)
    for version, text in (("newer", newer), ("older", older)):
        assert text != header
        (folder / version).mkdir(exist_ok=True)
        (folder / version / "animegamer.h").write_text(text, encoding="utf-8")
    program = str(NATIVE / "tests" / "abi.c")
    return {"newer.exe": [program, "-Inewer", "-DNEWER"], "older.exe": [program, "-Iolder"]}


def check_dll(library: Path, header: Path) -> None:
    """A DLL exports what the header declares and nothing else, and needs only what Windows has."""
    read = run("x86_64-w64-mingw32-objdump", "-p", library, cwd=library.parent)
    exported = set(re.findall(r"^\s+\[ *\d+\] (?:\+base\[ *\d+\] +[0-9a-f]+ )?(\w+)$", read, re.MULTILINE))
    declared = set(re.findall(r"^AG_API [^(]*?(\w+)\(", header.read_text(encoding="utf-8"), re.MULTILINE))
    assert exported == declared, exported ^ declared
    needed = set(re.findall(r"DLL Name: (\S+)", read))
    assert needed <= {"KERNEL32.dll", "WS2_32.dll", "msvcrt.dll"}, needed


NATIVE = ROOT / "client" / "native"
MINGW = ("x86_64-w64-mingw32-gcc-posix", "x86_64-w64-mingw32-g++-posix")
PLAYS = {
    f"com.animegamer.client-{animegamer_rt.__version__}.tgz": play_unity,
    f"animegamer-unreal-{animegamer_rt.__version__}.zip": play_unreal,
    f"animegamer-native-{animegamer_rt.__version__}-linux-*.tar.gz": play_native,
    f"animegamer-native-{animegamer_rt.__version__}-windows-x86_64.zip": play_native,
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
                if play is play_native and "windows" in pattern and not shutil.which(MINGW[1]):
                    print(f"{pattern} is not packed here: {MINGW[1]} not found")
                    continue
                (archive,) = dist.resolve().glob(pattern)
                (folder := Path(name) / str(n)).mkdir()
                play(archive, folder, address)
                print(f"{archive.name} plays")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
