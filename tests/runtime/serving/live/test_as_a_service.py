"""As systemd and the reader of its log see the server: a real datagram socket, and a line for each turn."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import TIMEOUT_S, LiveServer, error_code

WATCHDOG_US = "400000"


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's socket; a server that is started now tells it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@animegamer-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(name.replace("@", "\0"))
        channel.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        monkeypatch.setenv("WATCHDOG_USEC", WATCHDOG_US)
        yield channel


def until(channel: socket.socket, state: str) -> list[str]:
    """What the server tells, up to a state; fails the test when it never comes."""
    told: list[str] = []
    while not told or told[-1] != state:
        told.append(channel.recv(100).decode())
    return told


def test_ready_comes_after_the_warm_up_and_stopping_before_the_end(
    bundle: Path, tmp_path: Path, manager: socket.socket
) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.3") as server:
        assert set(until(manager, "READY=1")) <= {"WATCHDOG=1", "READY=1"}
        assert server.ready().status()["state"] == "ready"
        until(manager, "WATCHDOG=1")
        assert server.end(signal.SIGTERM) == 0
        until(manager, "STOPPING=1")


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_watchdog_is_not_fed_while_a_turn_stands_still(
    bundle: Path, tmp_path: Path, manager: socket.socket
) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:1") as server, server.ready().client() as player:
        turn = player.begin(player.open())
        player.until(turn, "state")
        worker = server.status()["worker"]["pid"]
        os.kill(worker, signal.SIGSTOP)
        manager.settimeout(1.0)
        with pytest.raises(TimeoutError):
            while True:
                manager.recv(100)
        assert server.status()["running"] == 1, "the server itself still answers"
        os.kill(worker, signal.SIGCONT)
        manager.settimeout(TIMEOUT_S)
        until(manager, "WATCHDOG=1")
        assert player.rest(turn)[-1].type == "done"


def test_the_log_tells_what_became_of_each_turn(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.5") as server:
        with server.ready().client() as player:
            game = player.open()
            seconds = player.play(game)[-1].fields["seconds"]["total"]
            assert error_code(player.play(game, deadline_s=0.01)) == "deadline"
            turn = player.begin(game)
            player.ask("cancel", {"token": game.token}, session=game.session, control=True)
            assert error_code(player.rest(turn)) == "cancelled"
        assert server.end() == 0
        server.process.wait()
    done, lost, stopped = [
        line.split(maxsplit=1)[1].strip() for line in server.said if f"session {game.session}" in line
    ]
    assert done == f"INFO turn done (session {game.session}, turn 1, seconds {round(seconds, 3)})"
    assert lost == f"WARNING turn failed: deadline (session {game.session}, turn 2)"
    assert stopped == f"INFO turn ended: cancelled (session {game.session}, turn 2)"
