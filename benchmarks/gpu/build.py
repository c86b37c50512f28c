"""The kernels' library for this machine's GPU: built where nvcc is, unless ANIMEGAMER_KERNELS names one.

Used by gpu.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from animegamer_kernels.library import FILE_NAME, PATH_VARIABLE, find_library

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "kernels"
CUDA = "/usr/local/cuda/bin"
"""Where its installer puts nvcc; the shell need not know it."""
PROGRAM = "animegamer_kernels_bench"
"""Times every kernel by itself, beside the library it was built with."""


def entries(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: where the library is, null if there is none. A build that fails ends the process with its words."""
    wanted = asked["device"] == "cuda" and not os.environ.get(PATH_VARIABLE)
    path = os.pathsep.join([os.environ.get("PATH", ""), CUDA])
    if not wanted or shutil.which("cmake") is None or shutil.which("nvcc", path=path) is None:
        found = find_library()
        yield {"built": False, "library": str(found) if found is not None and found.is_file() else None}
        return
    started = time.perf_counter()
    # CMake asks for make where nothing is said, and an image with pip's CMake and Ninja may have none.
    generator = [] if shutil.which("make") or os.environ.get("CMAKE_GENERATOR") else ["-G", "Ninja"]
    for command in (
        ["cmake", *generator, "-S", str(ROOT), "-B", str(FOLDER), "-DCMAKE_CUDA_ARCHITECTURES=native"],
        ["cmake", "--build", str(FOLDER), "--parallel"],
    ):
        subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    seconds = round(time.perf_counter() - started, 1)
    yield {"built": True, "library": str(FOLDER / FILE_NAME), "seconds": seconds}
