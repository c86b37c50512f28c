"""Builds the kernels' library once for these tests, and leaves out what this machine cannot build or run, saying so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from animegamer_kernels import Library, open_library
from animegamer_kernels.library import FILE_NAME

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# Kept between runs, so that only what changed is compiled again.
BUILD = ROOT / "build" / "kernels-test"
COMPILERS = tuple(filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))
left_out: dict[str, int] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on a GPU need one; all of them need a C++ compiler and CMake, which playing does not."""
    builds = shutil.which("cmake") is not None and any(shutil.which(name) for name in COMPILERS)
    kept, dropped = [], []
    for item in items:
        reason = None
        if HERE in item.path.parents:
            if not builds:
                reason = "CMake or a C++ compiler is missing"
            elif item.get_closest_marker("gpu") and not torch.cuda.is_available():
                reason = "PyTorch finds no NVIDIA GPU"
        if reason is None:
            kept.append(item)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
            dropped.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason, count in left_out.items():
        terminalreporter.write_line(f"tests/kernels: {count} tests left out: {reason}")


@pytest.fixture(scope="session")
def library() -> Library:
    """The library as this machine can build it: with nvcc the CUDA operators too, without it the references alone."""
    architectures = "native" if torch.cuda.is_available() else "80-real"
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"]
    for command in (
        [*configure, f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"],
        ["cmake", "--build", str(BUILD), "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return open_library(BUILD / FILE_NAME)
