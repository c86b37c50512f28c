"""What the conformance suite does not play: a server that keeps starting, a session that is gone after a loss."""

from __future__ import annotations

import pytest
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import FRAMES, frame_rows

from animegamer_client import (
    Client,
    Done,
    Event,
    Frame,
    ServerRefused,
)

EVENTS = 8


def assert_whole(events: list[Event]) -> None:
    assert [event.seq for event in events] == list(range(EVENTS))
    assert isinstance(events[-1], Done)
    frames = [event for event in events if isinstance(event, Frame)]
    for index, frame in enumerate(frames):
        assert frame.index == index and frame.pixels[0, 0, 0] == frame_rows(3, 1, index, 3)[0, 0]
    assert len(frames) == FRAMES


def test_server_that_keeps_starting_is_told_of(server: FakeServer) -> None:
    server.refusals["turn"] = ["starting"] * 99
    with Client(server.address, timeout_s=1) as client, pytest.raises(ServerRefused) as caught:
        list(client.open().turn("Mia waves."))
    assert caught.value.code == "starting"


def test_session_that_is_gone_after_a_loss_is_told_of(server: FakeServer) -> None:
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        list(game.turn("Mia waves."))
        server.faults[2] = "restart"
        turn = game.turn("Mia runs.")
        assert next(turn).seq == 0
        server.games.clear()
        with pytest.raises(ServerRefused) as caught:
            list(turn)
        assert caught.value.code == "unknown_session"
