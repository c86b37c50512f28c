"""What may go wrong while a turn runs: the loop over its events notices nothing, or is told what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from animegamer_client import (
    Client,
    Done,
    Event,
    Frame,
    ProtocolError,
    ServerRefused,
    TimedOut,
)
from client.conformance.fake_server import FRAMES, FakeServer, frame_rows

EVENTS = 8


def play(server: FakeServer, timeout_s: float = 5, make_client: Callable[..., Any] = Client) -> list[Event]:
    with make_client(server.address, timeout_s=timeout_s) as client:
        game = client.open(seed=3)
        events = list(game.turn("Mia waves.", turn_id="mine"))
        assert game.turns == 1
    return events


def assert_whole(events: list[Event]) -> None:
    assert [event.seq for event in events] == list(range(EVENTS))
    assert isinstance(events[-1], Done)
    frames = [event for event in events if isinstance(event, Frame)]
    for index, frame in enumerate(frames):
        assert frame.index == index and frame.pixels[0, 0, 0] == frame_rows(3, 1, index, 3)[0, 0]
    assert len(frames) == FRAMES


@pytest.mark.parametrize("seq", [1, 5, 7])
def test_connection_lost_at_any_event(make_client: Callable[..., Any], server: FakeServer, seq: int) -> None:
    server.faults[seq] = "drop"
    assert_whole(play(server, make_client=make_client))
    replays = [message for message in server.seen if message.type == "replay"]
    assert [message.fields["after_seq"] for message in replays] == [seq - 1]
    tokens = [message.fields.get("token") for message in server.seen if message.type == "open"]
    assert tokens == [None, "token-1"]
    assert server.kinds().count("turn") == 1


def test_connection_lost_before_the_turn_was_accepted(server: FakeServer) -> None:
    server.faults[0] = "drop"
    assert_whole(play(server))
    turns = [message.fields["turn_id"] for message in server.seen if message.type == "turn"]
    assert turns == ["mine", "mine"]


@pytest.mark.parametrize("seq", [0, 5, 7])
def test_server_that_restarts_and_forgets_the_turn_is_asked_again(server: FakeServer, seq: int) -> None:
    server.faults[seq] = "restart"
    assert_whole(play(server))
    turns = [message.fields["turn_id"] for message in server.seen if message.type == "turn"]
    assert turns == ["mine", "mine"]


def test_silent_server_times_out_and_says_how_to_go_on(make_client: Callable[..., Any], server: FakeServer) -> None:
    server.faults[4] = "silence"
    with make_client(server.address, timeout_s=1) as client:
        game, seen = client.open(), []
        with pytest.raises(TimedOut, match="no answer within 1 s.*resume=game.token"):
            for event in game.turn("Mia waves."):
                seen.append(event.seq)
        assert seen == [0, 1, 2, 3]
    assert server.kinds().count("hello") >= 2, "a silent connection is made anew before it is given up"


def test_garbage_is_an_error_and_the_client_lives(server: FakeServer) -> None:
    server.faults[3] = "garbage"
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        with pytest.raises(ProtocolError, match="not a message of this protocol"):
            list(game.turn("Mia waves."))
        assert client.open(resume=game.token).session == game.session


def test_starting_server_is_waited_for(server: FakeServer) -> None:
    server.refusals["turn"] = ["starting", "starting"]
    assert_whole(play(server))


def test_server_that_keeps_starting_is_told_of(server: FakeServer) -> None:
    server.refusals["turn"] = ["starting"] * 99
    with Client(server.address, timeout_s=1) as client, pytest.raises(ServerRefused) as caught:
        list(client.open().turn("Mia waves."))
    assert caught.value.code == "starting"


def test_refusal_of_a_new_turn_is_told_at_once(server: FakeServer) -> None:
    server.refusals["turn"] = ["busy"]
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        with pytest.raises(ServerRefused) as caught:
            list(game.turn("Mia waves."))
        assert caught.value.code == "busy" and server.kinds().count("turn") == 1


def test_draining_server_after_a_loss_is_waited_out(server: FakeServer) -> None:
    server.faults[3] = "drop"
    server.refusals["replay"] = ["draining", "busy"]
    assert_whole(play(server))


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
