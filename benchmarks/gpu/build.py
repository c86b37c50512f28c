"""Builds the kernel library for this machine's GPU if nvcc is found, unless ANIMEGAMER_KERNELS names one."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from animegamer_kernels.library import FILE_NAME, PATH_VARIABLE, find_library

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "kernels"
CUDA = "/usr/local/cuda/bin"
"""Where CUDA's installer puts nvcc, which may not be on PATH."""


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: the library's path, null if there is none. A failed build ends the process with its output."""
    can_build = job_args["device"] == "cuda" and not os.environ.get(PATH_VARIABLE)
    path = os.pathsep.join([os.environ.get("PATH", ""), CUDA])
    if not can_build or shutil.which("cmake") is None or shutil.which("nvcc", path=path) is None:
        found = find_library()
        yield {"built": False, "library": str(found) if found is not None and found.is_file() else None}
        return
    started = time.perf_counter()
    # CMake's default is make, which an image with CMake and Ninja from pip may lack.
    generator = [] if shutil.which("make") or os.environ.get("CMAKE_GENERATOR") else ["-G", "Ninja"]
    # From PyTorch: for `native`, CMake would have to run its own program on the GPU.
    target = "-DCMAKE_CUDA_ARCHITECTURES={}{}-real".format(*torch.cuda.get_device_capability())
    # --fresh: CMake rejects a build folder that was copied from another source folder.
    for command in (
        ["cmake", "--fresh", *generator, "-S", str(ROOT), "-B", str(FOLDER), target],
        ["cmake", "--build", str(FOLDER), "--parallel"],
    ):
        subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    seconds = round(time.perf_counter() - started, 1)
    yield {"built": True, "library": str(FOLDER / FILE_NAME), "seconds": seconds}
