"""A tiny bundle, and one live server that most tests share; faults that end it get servers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer, RawClient
from tiny_reader import add_reader

import fakes


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny").folder


@pytest.fixture(scope="session")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that reads everyday words."""
    return add_reader(fakes.write_bundle(tmp_path_factory.mktemp("reading") / "tiny")).folder


@pytest.fixture(scope="session")
def shared_server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    words = tmp_path_factory.mktemp("words") / "blocked.txt"
    words.write_text("# not in this house\nnaked\nchop off\n", encoding="utf-8")
    state = tmp_path_factory.mktemp("state")
    with LiveServer(bundle, state, block_list=str(words), sessions=0) as server:
        yield server.ready()


@pytest.fixture
def server(shared_server: LiveServer) -> Iterator[LiveServer]:
    """The shared server, which must be as well after the test as before."""
    before = shared_server.status()
    yield shared_server
    after = shared_server.await_status(lambda status: status["state"] == "ready" and not status["running"])
    assert after["worker"]["pid"] == before["worker"]["pid"]


@pytest.fixture
def player(server: LiveServer) -> Iterator[RawClient]:
    with server.client() as client:
        yield client
