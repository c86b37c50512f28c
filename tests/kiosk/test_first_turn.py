"""The turn that an update asks of the gateway, as a page would."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_socket import web
from live_server import LiveServer

import fakes
from animegamer_kiosk.first_turn import first_turn
from animegamer_rt.errors import ServerError


def test_a_turn_is_played_and_a_gateway_that_is_gone_is_an_error(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", "--web", "0") as server:
        port = int(web(server.ready()).rstrip("/").rpartition(":")[2])
        assert "animegamer" in first_turn(port)
    with pytest.raises(ServerError, match="the gateway does not answer"):
        first_turn(port)
