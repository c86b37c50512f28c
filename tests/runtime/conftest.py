"""The tiny bundle, for tests that have none of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

import fakes
from animegamer_rt.bundle.loader import Bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A fresh one for each test, in `tmp_path`."""
    return fakes.write_bundle(tmp_path / "tiny")
