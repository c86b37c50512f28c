"""Builds the kernels' library once, and deselects tests that this machine cannot build or run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from kernel_builds import CUDA_INCLUDE, SANITIZER, build_emulated, build_library, build_sanitized, can_build
from kernel_results import Operators

from animegamer_kernels import Library, open_library
from animegamer_kernels.library import Arguments
from animegamer_rt.backends.torch import custom_ops
from animegamer_rt.backends.torch.kernels import Kernels, has_warpgroups

HERE = Path(__file__).resolve().parent
EMULATED_VARIABLE, LIBRARY_VARIABLE = "ANIMEGAMER_TEST_EMULATED", "ANIMEGAMER_TEST_LIBRARY"
"""Paths of libraries already built, for the process that test_bounds.py starts. It does not use a GPU: CUDA may not
start under AddressSanitizer."""
deselected: dict[str, int] = {}


def reason_to_deselect(item: pytest.Item) -> str | None:
    """Why this machine cannot run a test, or None."""
    has_gpu = EMULATED_VARIABLE not in os.environ and torch.cuda.is_available()
    if not can_build():
        return "CMake or a C++ compiler is missing"
    if "emulated" in item.name and CUDA_INCLUDE is None:
        return "CUDA's headers, which come with nvcc, are missing"
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
        reason = reason_to_deselect(item) if HERE in item.path.parents else None
        if reason is None:
            kept.append(item)
        else:
            deselected[reason] = deselected.get(reason, 0) + 1
            dropped.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason, count in deselected.items():
        terminalreporter.write_line(f"tests/kernels: {count} tests deselected: {reason}")


class EmulatedLibrary(Library):
    """Runs the emulated kernel where `Library` would run the reference."""

    def call_unchecked(self, name: str, arguments: Arguments, stream: int | None) -> int:
        return super().call_unchecked(name, arguments, stream or 0)


@pytest.fixture(scope="session")
def library() -> Library:
    """The library as `make kernels` builds it, for fewer architectures; without nvcc it has the references only."""
    if LIBRARY_VARIABLE in os.environ:
        return open_library(Path(os.environ[LIBRARY_VARIABLE]))
    return open_library(build_library())


@pytest.fixture(scope="session")
def sanitized(library: Library) -> dict[str, str]:
    """Environment of a process that aborts when an emulated kernel accesses memory outside an array."""
    return {
        **os.environ,
        EMULATED_VARIABLE: str(build_sanitized()),
        LIBRARY_VARIABLE: str(library.path),
        # With C++ beside it: onnxruntime 1.23 throws while it is imported.
        "LD_PRELOAD": f"{SANITIZER}:libstdc++.so.6",
        # Switching fibers would be reported as stack errors, and leaks are Python's own.
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
    return Operators(EmulatedLibrary(Path(built) if built else build_emulated()), "cpu")


@pytest.fixture(scope="session")
def gpu(library: Library) -> Operators:
    """The kernels on a GPU."""
    return Operators(library, "cuda")


@pytest.fixture(params=["reference", "emulated", pytest.param("gpu", marks=pytest.mark.gpu)])
def operators(request: pytest.FixtureRequest) -> Operators:
    """Every implementation of the operators that this machine can run."""
    found: Operators = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def kernels(library: Library) -> Kernels:
    """The PyTorch backend's kernels. For tensors on the CPU they are the references."""
    return Kernels(str(library.path))


@pytest.fixture(params=["reference", "emulated"])
def both_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """The PyTorch backend's kernels for tensors on the CPU: the references, or the emulated kernels, which are slow."""
    found: Operators = request.getfixturevalue(request.param)
    monkeypatch.setattr(custom_ops, "opened", lambda path: found.library)
    return Kernels(str(found.library.path))


@pytest.fixture
def one_thread() -> None:
    """One thread for PyTorch, so that sums have one order."""
    torch.set_num_threads(1)
