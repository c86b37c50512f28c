"""Every test sees the same terminal and the same Ctrl-C, and what a test started ends with the run at the latest."""

from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

collect_ignore = [] if sys.platform == "linux" else ["runtime/test_windows.py"]  # it pretends, on Linux
# People set NO_COLOR and TERM=dumb, CI systems FORCE_COLOR: rich obeys, and from Python 3.14 on argparse does too.
ASKING = ("FORCE_COLOR", "NO_COLOR", "PYTHON_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
RUN = "ANIMEGAMER_TEST_RUN"
"""Every process that a test starts inherits this variable. Its value is this run's."""
LONG_FILES = (
    "pocket/test_build.py",
    "export/test_against_torch.py",
    "export/test_release.py",
    "kernels/test_bounds.py",
    "kernels/test_gpu_dry_run.py",
    "benchmarks/test_soak.py",
)
"""Tests of half a minute or more. They come first, so that no worker ends alone with one, and others find the networks
traced that the two of export trace."""


@pytest.fixture(scope="session", autouse=True)
def same_terminal() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as variables:
        for name in ASKING:
            variables.delenv(name, raising=False)
        variables.setenv("TERM", "xterm-256color")
        variables.setenv("COLUMNS", "80")
        yield


@pytest.fixture(scope="session", autouse=True)
def same_signals() -> Iterator[None]:
    """Background jobs of a shell ignore SIGINT, those of nohup SIGHUP; tests' processes would inherit it."""
    wanted = {signal.SIGINT: signal.default_int_handler}
    if hasattr(signal, "SIGHUP"):
        wanted[signal.SIGHUP] = signal.SIG_DFL
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG_FILES))


def pytest_collection_finish() -> None:
    gc.freeze()  # an eighth of the seconds went into looking for garbage among what imports had made


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist inherit it
        os.environ[RUN] = uuid.uuid4().hex


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends what tests left behind, also where the worker that ran them was killed. Linux only."""
    if not hasattr(config, "workerinput"):
        for process, command in left_behind():
            print(f"ended what a test left behind: {process} {command}", file=sys.stderr)
            os.kill(process, signal.SIGKILL)


def left_behind() -> list[tuple[int, str]]:
    """Processes of this run that still live: (id, command)."""
    mark, found = f"{RUN}={os.environ[RUN]}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]))
        except OSError:
            continue  # it ended, or it is another user's
    return found
