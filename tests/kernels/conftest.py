"""Builds the kernels' library once for these tests, and leaves out tests that this machine cannot build or run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from kernel_results import Operators

from animegamer_kernels import Library, open_library
from animegamer_kernels.library import FILE_NAME, Arguments
from animegamer_rt.backends.torch import custom_ops
from animegamer_rt.backends.torch.kernels import Kernels, has_warpgroups

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "kernels-test"
"""Kept between runs, so that only changed sources are compiled again."""
BUILD_LOCK = FileLock(ROOT / "build" / "kernels-test.lock")
ARCHITECTURES = "80-real;120"
"""The oldest and the newest; `make kernels` compiles for all. sm_90a has a target of its own."""
COMPILERS = tuple(filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))
CUDA_HOMES = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda", "/usr/lib/cuda", "/usr")
CUDA_INCLUDE = next(
    (Path(home, "include") for home in filter(None, CUDA_HOMES) if Path(home, "include", "cuda_fp8.h").is_file()), None
)
EMULATED_VARIABLE, LIBRARY_VARIABLE = "ANIMEGAMER_TEST_EMULATED", "ANIMEGAMER_TEST_LIBRARY"
"""Paths of libraries that are built already. The process that test_bounds.py starts opens them, and does not use a GPU:
CUDA may not start beside AddressSanitizer."""


def find_sanitizer() -> Path | None:
    """The library of AddressSanitizer, if the compiler is GCC and has it."""
    compiler = next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        return None
    answer = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return Path(answer) if Path(answer).is_file() else None


SANITIZER = find_sanitizer()
left_out: dict[str, int] = {}


def why_left_out(item: pytest.Item) -> str | None:
    """Why this machine cannot run a test, or None."""
    has_gpu = EMULATED_VARIABLE not in os.environ and torch.cuda.is_available()
    if shutil.which("cmake") is None or not any(shutil.which(name) for name in COMPILERS):
        return "CMake or a C++ compiler is missing"
    if "emulated" in item.name and CUDA_INCLUDE is None:
        return "CUDA's headers are missing, which come with nvcc"
    if "sanitized" in item.name and SANITIZER is None:
        return "GCC's AddressSanitizer is missing"
    if item.get_closest_marker("gpu") and not has_gpu:
        return "PyTorch finds no NVIDIA GPU"
    if item.get_closest_marker("gpu") and "warpgroups" in item.name:
        return None if has_warpgroups(torch.device("cuda", 0)) else "wgmma is an instruction of sm_90 only"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, dropped = [], []
    for item in items:
        reason = why_left_out(item) if HERE in item.path.parents else None
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
    """Configures and builds with CMake. Returns the library's path."""
    for command in (
        ["cmake", "-S", str(source), "-B", str(folder), "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", *options],
        ["cmake", "--build", str(folder), "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / FILE_NAME


def build_emulated(folder: Path, *options: str) -> Path:
    """Translates the kernels' sources to C++ and builds them for the CPU."""
    command = [sys.executable, str(HERE / "emulation" / "translate.py"), str(ROOT / "kernels" / "csrc")]
    with BUILD_LOCK:
        subprocess.run([*command, str(folder / "translated")], check=True)
        return build(HERE / "emulation", folder, f"-DCUDA_INCLUDE={CUDA_INCLUDE}", *options)


class EmulatedLibrary(Library):
    """The kernels' own code on host memory: runs the kernel where `Library` would run the reference."""

    def call_unchecked(self, name: str, arguments: Arguments, stream: int | None) -> int:
        return super().call_unchecked(name, arguments, stream or 0)


@pytest.fixture(scope="session")
def library() -> Library:
    """The library as `make kernels` builds it, for fewer architectures; without nvcc it has the references only."""
    if LIBRARY_VARIABLE in os.environ:
        return open_library(Path(os.environ[LIBRARY_VARIABLE]))
    with BUILD_LOCK:
        # Said each time: an earlier configuration of this folder may have been for other architectures.
        return open_library(build(ROOT, BUILD, f"-DCMAKE_CUDA_ARCHITECTURES={ARCHITECTURES}"))


@pytest.fixture(scope="session")
def sanitized(library: Library) -> dict[str, str]:
    """The environment of a process that ends when an emulated kernel reads or writes beyond an array."""
    flags = ("-DCMAKE_CXX_FLAGS=-fsanitize=address", "-DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=address")
    return {
        **os.environ,
        EMULATED_VARIABLE: str(build_emulated(BUILD / "sanitized", *flags)),
        LIBRARY_VARIABLE: str(library.path),
        "LD_PRELOAD": str(SANITIZER),
        # Fibers leave each other's stacks in ways that it would report. Leaks of Python itself are not ours.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0",
    }


@pytest.fixture(scope="session")
def reference(library: Library) -> Operators:
    """The plain references."""
    return Operators(library, "cpu")


@pytest.fixture(scope="session")
def emulated() -> Operators:
    """The kernels' own code on the CPU; see emulation/cuda_runtime.h."""
    built = os.environ.get(EMULATED_VARIABLE)
    return Operators(EmulatedLibrary(Path(built) if built else build_emulated(BUILD / "emulation")), "cpu")


@pytest.fixture(scope="session")
def gpu(library: Library) -> Operators:
    """The kernels on a GPU."""
    return Operators(library, "cuda")


@pytest.fixture(params=["reference", "emulated", pytest.param("gpu", marks=pytest.mark.gpu)])
def operators(request: pytest.FixtureRequest) -> Operators:
    """Every implementation of the operators that runs here."""
    found: Operators = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def kernels(library: Library) -> Kernels:
    """The PyTorch backend's kernels. For tensors on the CPU they are the references."""
    return Kernels(str(library.path))


@pytest.fixture(params=["reference", "emulated"])
def both_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """The PyTorch backend's kernels for tensors on the CPU: the references, or the kernels' own code, which is slow."""
    found: Operators = request.getfixturevalue(request.param)
    monkeypatch.setattr(custom_ops, "_library", lambda path: found.library)
    return Kernels(str(found.library.path))


@pytest.fixture
def one_thread() -> None:
    """One thread for PyTorch, so that sums have one order."""
    torch.set_num_threads(1)
