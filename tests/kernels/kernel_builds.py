"""Builds the libraries for the kernels' tests. Imports the standard library only.

`.ci/run` runs it in the background while Python's packages are installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from animegamer_kernels.library import FILE_NAME

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "kernels-test"
"""Kept between runs, for incremental builds."""
ARCHITECTURES = "80-real;120"
"""The oldest and the newest; `make kernels` compiles for all. sm_90a has its own target."""
COMPILERS = tuple(filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))
CUDA_HOMES = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/usr/lib/cuda", "/usr")
CUDA_INCLUDE = next(
    (Path(home, "include") for home in filter(None, CUDA_HOMES) if Path(home, "include", "cuda_fp8.h").is_file()), None
)


def can_build() -> bool:
    """Whether CMake and a C++ compiler are installed."""
    return shutil.which("cmake") is not None and any(shutil.which(name) for name in COMPILERS)


def find_sanitizer() -> Path | None:
    """AddressSanitizer's library, if the compiler is GCC and has it."""
    compiler = next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        return None
    answer = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return Path(answer) if Path(answer).is_file() else None


SANITIZER = find_sanitizer()


@contextmanager
def build_lock() -> Iterator[None]:
    """A lock: one process builds at a time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(source: Path, folder: Path, *options: str) -> Path:
    """Configures and builds with CMake. Returns the library's path."""
    for command in (
        ["cmake", "-S", str(source), "-B", str(folder), "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", *options],
        ["cmake", "--build", str(folder), "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / FILE_NAME


def build_library() -> Path:
    """The library as `make kernels` builds it, for fewer architectures; without nvcc it has the references only."""
    with build_lock():
        # The folder may have been configured for other architectures.
        return build(ROOT, BUILD, f"-DCMAKE_CUDA_ARCHITECTURES={ARCHITECTURES}")


def build_emulated(folder: Path = BUILD / "emulation", *options: str) -> Path:
    """Translates the kernels' sources to C++ and builds them for the CPU."""
    command = [sys.executable, str(HERE / "emulation" / "translate.py"), str(ROOT / "kernels" / "csrc")]
    with build_lock():
        subprocess.run([*command, str(folder / "translated")], check=True)
        return build(HERE / "emulation", folder, f"-DCUDA_INCLUDE={CUDA_INCLUDE}", *options)


def build_sanitized() -> Path:
    """The emulated library with AddressSanitizer, which aborts on accesses outside an array."""
    flags = ("-DCMAKE_CXX_FLAGS=-fsanitize=address", "-DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=address")
    return build_emulated(BUILD / "sanitized", *flags)


if __name__ == "__main__" and can_build():
    build_library()
    if CUDA_INCLUDE is not None:
        build_emulated()
        if SANITIZER is not None:
            build_sanitized()
