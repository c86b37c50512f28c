"""One game's trouble is not another's, and a game can always go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import FRAMES, frame_rows

from animegamer_client import Client, Done, Event, Frame, ProtocolError, ServerRefused

MakeClient = Callable[..., Any]
EVENTS = 8


def assert_whole(events: list[Event]) -> None:
    assert [event.seq for event in events] == list(range(EVENTS))
    assert isinstance(events[-1], Done)
    frames = [event for event in events if isinstance(event, Frame)]
    for index, frame in enumerate(frames):
        assert frame.index == index and frame.pixels[0, 0, 0] == frame_rows(3, 1, index, 3)[0, 0]
    assert len(frames) == FRAMES


@pytest.mark.parametrize("characters", [66_000, 3_000_000])
def test_too_long_a_text_ends_its_own_call_only(make_client: MakeClient, server: FakeServer, characters: int) -> None:
    long = "x" * characters
    with make_client(server.address, timeout_s=5) as client:
        one, other = client.open(seed=3), client.open()
        turn = one.turn("Mia waves.")
        events = [next(turn)]
        for call in (
            lambda: list(other.turn(long)),
            lambda: list(other.turn("Mia waves.", turn_id=long)),
            lambda: client.open(resume=long),
        ):
            with pytest.raises(ProtocolError, match="too long to be sent") as caught:
                call()
            assert caught.value.code == "too_large"
        assert_whole(events + list(turn))
        assert isinstance(list(other.turn("Mia runs."))[-1], Done)
    assert server.kinds().count("hello") == 1, "nothing broke the connection"


def test_turn_that_is_left_while_the_wire_is_cut_stops_and_the_next_one_runs(
    make_client: MakeClient, server: FakeServer
) -> None:
    server.faults[4] = "hold"
    with make_client(server.address, timeout_s=5) as client:
        game = client.open()
        turn = game.turn("Mia waves.")
        while next(turn).seq < 3:
            pass
        server.drop_soon()
        turn.close()
        assert isinstance(list(game.turn("Mia runs."))[-1], Done)
        assert game.turns == len(server.games[game.token].turns)


def test_turn_whose_loop_was_left_does_not_bar_the_next_though_a_variable_holds_it(server: FakeServer) -> None:
    server.faults[5] = "hold"
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        turn = game.turn("Mia waves.")
        for event in turn:
            if isinstance(event, Frame):
                break
        assert isinstance(list(game.turn("Mia runs."))[-1], Done) and list(turn) == [] and game.turns == 1


def test_turn_may_be_read_on_after_a_break(server: FakeServer) -> None:
    with Client(server.address, timeout_s=5) as client:
        turn = client.open(seed=3).turn("Mia waves.")
        events = []
        for event in turn:
            events.append(event)
            if event.seq == 3:
                break
        assert_whole(events + list(turn))


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
