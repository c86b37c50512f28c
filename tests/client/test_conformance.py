"""The Python client in the conformance suite, its table and ports; built clients play it in their own tests."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client.conformance import ports
from client.conformance import run as conformance

README = Path(__file__).parents[2] / "client" / "README.md"


def test_the_scenarios_of_the_conformance_suite_pass() -> None:
    names = ("python", "aio")
    with ThreadPoolExecutor() as pool:  # most scenarios wait
        played = dict(zip(names, pool.map(conformance.play, names), strict=True))
    assert played == {name: conformance.recorded()[name] for name in names}


def test_the_table_shows_the_record() -> None:
    readme = README.read_text(encoding="utf-8")
    assert conformance.with_table(readme) == readme, "run: python -m client.conformance.run"
    every = {scenario["name"] for scenario in conformance.SCENARIOS}
    assert {name: set(outcomes) for name, outcomes in conformance.recorded().items()} == dict.fromkeys(
        conformance.CLIENTS, every
    )


def test_ports_stay_reserved_while_their_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with ports.ReservedPorts() as mine:
        monkeypatch.setattr(ports, "BLOCKS", range(mine.port - 1, mine.port + 3, 4))
        for _ in range(2):
            with pytest.raises(OSError, match="no free ports"):
                ports.ReservedPorts()
            socket.create_server(("127.0.0.1", mine.port)).close()
    ports.ReservedPorts().close()
