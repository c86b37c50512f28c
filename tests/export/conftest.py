"""What the tests of the export share: a tiny bundle of random weights, and one tracing of each network."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest
from tracing import each_network_traced_once, one_thread, traced_once, traces  # noqa: F401  fixtures
from watching import FP16, Watching

from animegamer_export.build.steps import export
from animegamer_export.build.weight_source import ExportSource, from_seed
from animegamer_rt.bundle.loader import Bundle, load


@pytest.fixture(scope="session")
def source() -> ExportSource:
    return from_seed(0, "tiny")


@pytest.fixture(scope="session")
def whole(source: ExportSource, traces: Path) -> Bundle:  # noqa: F811
    """The tiny bundle, every part fp16. Tests leave it as it is: the workers of pytest-xdist share it."""
    folder = traces.parent / "tiny"
    with (traces / "lock").open("w") as lock, each_network_traced_once(traces):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            export(source, FP16, folder, Watching())
        return load(folder)


@pytest.fixture
def bundle(whole: Bundle, tmp_path: Path) -> Bundle:
    """The tiny bundle, to be changed."""
    return load(shutil.copytree(whole.folder, tmp_path / "tiny"))
