"""What every test of the client may ask for: a fake server, and a maker of clients of both kinds."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from animegamer_client import Client, aio
from client.blocking_aio import BlockingAio
from client.fake_server import FakeServer, fake_server

# The native client and the Unreal plugin are built by what `make clients` names; not where that is missing.
collect_ignore = [] if shutil.which("cmake") and shutil.which("c++") else ["test_native.py", "test_unreal.py"]
# The Unity package is tested with Linux's /proc, and Godot with Xvfb. On Linux Mono and Godot must be there.
collect_ignore += [] if sys.platform == "linux" else ["test_unity.py", "test_godot.py"]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
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
