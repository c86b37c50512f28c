"""What every test of the client may ask for: a fake server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client.fake_server import FakeServer, fake_server


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running
