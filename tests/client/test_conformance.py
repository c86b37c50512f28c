"""The Python client in the conformance suite, and its ports; built clients play it in their own tests."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from client.conformance import ports
from client.conformance import run as conformance

from client import driver_stories as stories


def test_the_scenarios_of_the_conformance_suite_pass() -> None:
    drivers = conformance.PYTHON, [*conformance.PYTHON, "--aio"]
    with ThreadPoolExecutor() as pool:  # most scenarios wait
        assert list(pool.map(conformance.play, drivers)) == [{}, {}]


def test_clips_are_shown_as_in_every_client() -> None:
    stories.check_display(conformance.PYTHON)


def test_ports_stay_reserved_while_their_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with ports.ReservedPorts() as mine:
        monkeypatch.setattr(ports, "BLOCKS", range(mine.port - 1, mine.port + 3, 4))
        for _ in range(2):
            with pytest.raises(OSError, match="no free ports"):
                ports.ReservedPorts()
            socket.create_server(("127.0.0.1", mine.port)).close()
    ports.ReservedPorts().close()
