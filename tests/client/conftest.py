"""What every test of the client may ask for: a bundle, a fake server, and a maker of clients of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client.conformance.fake_server import FakeServer
from client.tools import ignored_tests

import fakes
from animegamer_client import Client, aio
from client.blocking_aio import BlockingAio

# `make clients` says why a client is left out, and .ci/run fails. Descriptors and threads are counted in Linux's /proc.
ON_LINUX = ["test_native.py", "test_unity.py"]
collect_ignore = ignored_tests() + ([] if sys.platform == "linux" else ON_LINUX)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of tiny networks, for live servers."""
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny").folder


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with contextlib.closing(FakeServer()) as running:
        yield running


@pytest.fixture(params=["plain", "asyncio"])
def make_client(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes a client as `Client(address, **options)` does; a test that uses it runs once over each client."""
    if request.param == "plain":
        yield Client
        return
    loop = asyncio.new_event_loop()
    try:
        yield lambda *arguments, **options: BlockingAio(aio.Client(*arguments, **options), loop)
    finally:
        loop.close()
