"""A store, and the server's core on it with simulated workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_server import SimulatedServer

from animegamer_rt.serving.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as opened:
        yield opened


@pytest.fixture
def server(store: Store, tmp_path: Path) -> SimulatedServer:
    return SimulatedServer(store, tmp_path)
