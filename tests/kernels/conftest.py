"""Builds the kernels' library once for these tests, and leaves out what this machine cannot build or run, saying so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from animegamer_kernels import Library, open_library
from animegamer_kernels.library import FILE_NAME, Arguments
from animegamer_rt.backends.torch import custom_ops as backend
from kernel_results import Kernels

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# Kept between runs, so that only what changed is compiled again; two processes of tests share it, one builds at a time.
BUILD = ROOT / "build" / "kernels-test"
BUILDING = FileLock(ROOT / "build" / "kernels-test.lock")
COMPILERS = tuple(filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))
CUDA_HOMES = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/usr/lib/cuda", "/usr")
CUDA_INCLUDE = next(
    (Path(home, "include") for home in filter(None, CUDA_HOMES) if Path(home, "include", "cuda_fp8.h").is_file()), None
)
EMULATED_VARIABLE, LIBRARY_VARIABLE = "ANIMEGAMER_TEST_EMULATED", "ANIMEGAMER_TEST_LIBRARY"
"""Libraries that are built already: what test_bounds.py runs opens them, and leaves CUDA alone, which may not start
beside AddressSanitizer."""


def find_sanitizer() -> Path | None:
    """The library of AddressSanitizer, if the compiler is GCC and has it."""
    compiler = next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        return None
    said = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return Path(said) if Path(said).is_file() else None


SANITIZER = find_sanitizer()
left_out: dict[str, int] = {}


def has_gpu() -> bool:
    """Whether tests may use one."""
    return EMULATED_VARIABLE not in os.environ and torch.cuda.is_available()


def has_warpgroups() -> bool:
    """Whether the GPU has the instructions of sm_90a."""
    return backend.has_warpgroups(torch.device("cuda", 0))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on a GPU need one; all of them need a C++ compiler and CMake, which playing does not."""
    builds = shutil.which("cmake") is not None and any(shutil.which(name) for name in COMPILERS)
    kept, dropped = [], []
    for item in items:
        reason = None
        if HERE in item.path.parents:
            if not builds:
                reason = "CMake or a C++ compiler is missing"
            elif "by_nvcc" in item.name and shutil.which(os.environ.get("CUDACXX", "nvcc")) is None:
                reason = "nvcc is missing"
            elif "emulated" in item.name and CUDA_INCLUDE is None:
                reason = "CUDA's headers are missing, which come with nvcc"
            elif "sanitized" in item.name and SANITIZER is None:
                reason = "GCC's AddressSanitizer is missing"
            elif item.get_closest_marker("gpu") and not has_gpu():
                reason = "PyTorch finds no NVIDIA GPU"
            elif item.get_closest_marker("gpu") and "warpgroups" in item.name and not has_warpgroups():
                reason = "products of warpgroups are instructions of sm_90 alone"
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


def build(source: Path, folder: Path, *options: str) -> Path:
    """Configures and builds; the library's file."""
    for command in (
        ["cmake", "-S", str(source), "-B", str(folder), "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", *options],
        ["cmake", "--build", str(folder), "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / FILE_NAME


@pytest.fixture(scope="session")
def library() -> Library:
    """The library as this machine can build it: with nvcc the CUDA operators too, without it the references alone."""
    if LIBRARY_VARIABLE in os.environ:
        return open_library(Path(os.environ[LIBRARY_VARIABLE]))
    with BUILDING:  # as `make kernels` does, for every architecture, whichever an earlier build was for
        return open_library(build(ROOT, BUILD, "-UCMAKE_CUDA_ARCHITECTURES"))


class Emulated(Library):
    """The kernels themselves on host memory: where a reference would be called, the kernel's own code is."""

    def call_unchecked(self, name: str, arguments: Arguments, stream: int | None) -> int:
        return super().call_unchecked(name, arguments, stream or 0)


def build_emulated(folder: Path, *options: str) -> Path:
    """Translates the kernels' sources and builds them for fibers of one processor."""
    command = [sys.executable, str(HERE / "emulation" / "translate.py"), str(ROOT / "kernels" / "csrc")]
    with BUILDING:
        subprocess.run([*command, str(folder / "translated")], check=True)
        return build(HERE / "emulation", folder, f"-DCUDA_INCLUDE={CUDA_INCLUDE}", *options)


@pytest.fixture(scope="session")
def emulated() -> Kernels:
    """The kernels' own code for fibers of one processor; emulation/cuda_runtime.h says what that shows."""
    built = os.environ.get(EMULATED_VARIABLE)
    return Kernels(Emulated(Path(built) if built else build_emulated(BUILD / "emulation")), "cpu")


@pytest.fixture(scope="session")
def sanitized(library: Library) -> dict[str, str]:
    """The environment of a process whose emulated kernels end it when they touch what is no array's."""
    flags = ("-DCMAKE_CXX_FLAGS=-fsanitize=address", "-DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=address")
    return {
        **os.environ,
        EMULATED_VARIABLE: str(build_emulated(BUILD / "sanitized", *flags)),
        LIBRARY_VARIABLE: str(library.path),
        "LD_PRELOAD": str(SANITIZER),
        # Fibers leave each other's stacks in ways that it would report; what Python leaves behind is not ours.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0",
    }


@pytest.fixture(scope="session")
def reference(library: Library) -> Kernels:
    """The plain references."""
    return Kernels(library, "cpu")


@pytest.fixture(params=["reference", "emulated"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> backend.Kernels:
    """The backend's kernels for tensors on the CPU: the references, or the kernels' own code there, which is slow."""
    operators: Kernels = request.getfixturevalue(request.param)
    monkeypatch.setattr(backend, "_opened", lambda path: operators.library)
    return backend.Kernels(str(operators.library.path))


@pytest.fixture(scope="session")
def gpu(library: Library) -> Kernels:
    """The kernels on a GPU."""
    return Kernels(library, "cuda")


def places(request: pytest.FixtureRequest) -> Kernels:
    found: Kernels = request.getfixturevalue(request.param)
    return found


ON_GPU = pytest.param("gpu", marks=pytest.mark.gpu)
kernels = pytest.fixture(params=["emulated", ON_GPU], name="kernels")(places)
operators = pytest.fixture(params=["reference", "emulated", ON_GPU], name="operators")(places)
