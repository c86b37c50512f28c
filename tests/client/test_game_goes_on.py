"""One game's trouble is not another's, a turn that counted is never told of as refused, and a game can always go on."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client.conformance.fake_server import FakeServer

from animegamer_client import Client, Done, Frame, ProtocolError, ServerRefused, aio
from animegamer_client.__main__ import main
from animegamer_client.errors import ClientError
from client.test_faults import assert_whole

MakeClient = Callable[..., Any]


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


@pytest.mark.parametrize("loss", ["gap", "drop"])
def test_refusal_of_the_rest_of_a_turn_is_asked_again_and_never_told(
    make_client: MakeClient, server: FakeServer, loss: str
) -> None:
    server.faults[3] = loss
    server.refusals["replay"] = ["degraded", "turn_running"]
    with make_client(server.address, timeout_s=5) as client:
        game = client.open(seed=3)
        assert_whole(list(game.turn("Mia waves.")))
        assert game.turns == 1
    assert server.kinds().count("turn") == 1


@pytest.mark.parametrize("loss", ["overtaken", "overtaking"])
def test_rest_of_a_turn_is_never_that_of_another_clients_turn(
    make_client: MakeClient, server: FakeServer, loss: str
) -> None:
    server.faults[5] = loss
    with make_client(server.address, timeout_s=60) as client:
        game, seen = client.open(seed=3), list[int]()
        turn = game.turn("Mia waves.")
        with pytest.raises(ServerRefused, match="lost turn 1, and another client has played") as caught:
            while True:
                seen.append(next(turn).seq)
        assert caught.value.code == "no_such_turn" and seen == [0, 1, 2, 3, 4]
        assert server.kinds().count("turn") == 1, "who plays it again plays it once"
        assert "replay" not in server.kinds(), "it would take the other's events, or keep the next turn waiting"
        if loss == "overtaken":
            assert [played.instruction for played in game.log()] == ["Tobo sleeps."]
            assert list(game.turn("Mia waves."))[-1].turn == game.turns == 2


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


def test_async_turn_whose_loop_was_left_does_not_bar_the_next(server: FakeServer) -> None:
    server.faults[5] = "hold"

    async def play() -> int:
        async with aio.Client(server.address, timeout_s=5) as client:
            game = await client.open()
            turn = game.turn("Mia waves.")
            async for event in turn:
                if isinstance(event, Frame):
                    break
            assert isinstance([event async for event in game.turn("Mia runs.")][-1], Done)
            return game.turns

    assert asyncio.run(play()) == 1


def test_turn_may_be_read_on_after_a_break(server: FakeServer) -> None:
    with Client(server.address, timeout_s=5) as client:
        turn = client.open(seed=3).turn("Mia waves.")
        events = []
        for event in turn:
            events.append(event)
            if event.seq == 3:
                break
        assert_whole(events + list(turn))


@pytest.mark.parametrize(
    "address", ["tcp://%:5570", "tcp://-:5570", "tcp://[:5570", "tcp://:5570", "tcp://a b:5570", "%"]
)
def test_address_that_is_none_is_refused_in_words(address: str) -> None:
    with pytest.raises((ValueError, ClientError), match="address"), Client(address, timeout_s=1):
        pass


@pytest.mark.parametrize("key", ["x" * 39, "\\" * 40, "é" * 40, '"' * 40, "", "~" * 40])
def test_key_that_is_none_is_refused_when_it_is_read(tmp_path: Path, key: str) -> None:
    path = tmp_path / "mia.key_secret"
    good = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    path.write_text(f'curve\n    public-key = "{good}"\n    secret-key = "{key}"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="key"):
        Client("tcp://127.0.0.1:5570", server_key=good, client_keys=path)
    with pytest.raises(ValueError, match="key"):
        Client("tcp://127.0.0.1:5570", server_key=key, client_keys=path)


def test_command_with_a_number_that_is_none_goes_on(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [":rewind ²", ":branch ①", ":rewind " + "9" * 5000, ":rewind -1", "Mia waves."]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(commands)))
    assert main(["play", server.address, "--out", str(tmp_path / "out")]) == 0
    assert "1 turn played" in capsys.readouterr().out
