"""The plain client and the asyncio client in ordinary use: a game as README tells it, and what each event holds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zmq
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import FRAMES, HEIGHT, WIDTH, frame_rows

from animegamer_client import (
    Accepted,
    Client,
    Done,
    Frame,
    Progress,
    State,
)

MakeClient = Callable[..., Any]


def test_events_hold_what_the_server_said(server: FakeServer) -> None:
    with Client(f"localhost:{server.port}", timeout_s=5, pixel_format="bgra32") as client:
        accepted, state, progress, *frames, done = client.open(seed=3).turn(" Mia waves. ", turn_id="mine")
        assert client.status()["worker"]["pid"] == 4711
    assert isinstance(accepted, Accepted) and isinstance(state, State) and isinstance(progress, Progress)
    assert (accepted.turn_id, accepted.instruction, accepted.replayed) == ("mine", "Mia waves.", False)
    assert (state.motion_level, state.social, state.character.social, state.shown.entertainment) == (2, 1, 55, 45)
    assert (progress.step, progress.steps) == (1, 2)
    assert isinstance(done, Done) and done.seconds.total == 0.6 and done.turns == 1
    for index, frame in enumerate(event for event in frames if isinstance(event, Frame)):
        assert (frame.index, frame.count, frame.pixels.shape) == (index, FRAMES, (HEIGHT, WIDTH, 4))
        assert frame.pixels.strides[0] == frame.stride > WIDTH * 4
        assert np.array_equal(frame.pixels, frame_rows(3, 1, index, 4)[:, :-2].reshape(HEIGHT, WIDTH, -1))
        assert np.shares_memory(frame.pixels, np.frombuffer(frame.data, np.uint8)), "a view, not a copy"
        assert not frame.pixels.flags.writeable


def test_jpeg_frames_are_files_and_say_so(server: FakeServer) -> None:
    with Client(server.address, timeout_s=5, codec="jpeg") as client:
        frame = next(event for event in client.open().turn("Mia waves.") if isinstance(event, Frame))
    assert bytes(frame.data).startswith(b"\xff\xd8")
    with pytest.raises(ValueError, match="jpeg"):
        _ = frame.pixels


def test_hello_carries_the_options(make_client: MakeClient, server: FakeServer) -> None:
    with make_client(
        server.address, timeout_s=5, pixel_format="bgra32", flip=True, jpeg_quality=70, clip=True
    ) as client:
        assert client.connect().bundle.name == "fake"
    hello = server.seen[0]
    wishes = {"pixel_format": "bgra32", "flip": True, "codec": "raw", "jpeg_quality": 70, "clip": True}
    assert hello.type == "hello" and hello.fields["versions"] == [1]
    assert {name: hello.fields[name] for name in wishes} == wishes


def test_log_branch_replay_and_export_of_a_long_game(make_client: MakeClient, server: FakeServer) -> None:
    with make_client(server.address, timeout_s=5) as client:
        game = client.open(seed=3)
        assert game.log() == []
        for n in range(5):
            list(game.turn(f"Mia waves {n}."))
        assert [(entry.turn, entry.instruction) for entry in game.log()] == [
            (n + 1, f"Mia waves {n}.") for n in range(5)
        ]
        other = game.branch(1, seed=9)
        assert (other.turns, other.seed, other.token != game.token) == (1, 9, True)
        assert [event.seq for event in game.replay(1, after_seq=4)] == [5, 6, 7]
        exported = other.export()
        assert exported.files == ("turn-001.mp4", "game.json") and exported.turns == 1


def test_turns_of_two_games_may_be_read_in_turn(server: FakeServer) -> None:
    with Client(server.address, timeout_s=5) as client:
        one, two = client.open(seed=1), client.open(seed=2)
        list(two.turn("Mia sleeps."))
        first, second = one.turn("Mia waves."), two.replay(1)
        pairs = list(zip(first, second, strict=True))
        assert {(a.session, b.session) for a, b in pairs} == {(one.session, two.session)}


def test_leaving_the_loop_cancels_the_turn_and_the_next_one_runs(make_client: MakeClient, server: FakeServer) -> None:
    server.faults[5] = "hold"
    with make_client(server.address, timeout_s=5) as client:
        game = client.open()
        for event in game.turn("Mia waves."):
            if isinstance(event, Frame):
                break
        gc.collect()
        events = list(game.turn("Mia runs."))
        assert isinstance(events[-1], Done) and (events[-1].turn, game.turns) == (1, 1)
        assert [turn["instruction"] for turn in server.games[game.token].turns] == ["Mia runs."]
    assert server.kinds().count("cancel") == 1


def test_turn_that_is_left_at_once_is_cancelled_though_the_cancel_came_first(server: FakeServer) -> None:
    server.faults[3], server.early_cancels = "hold", 1
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        game.turn("Mia waves.").close()
        assert len(list(game.turn("Mia runs."))) == 8 and game.turns == 1
        assert [turn["instruction"] for turn in server.games[game.token].turns] == ["Mia runs."]
    asked = [kind for kind in server.kinds() if kind in ("turn", "cancel")]
    assert sorted(asked[:3]) == ["cancel", "cancel", "turn"] and asked[3:] == ["turn"]


@pytest.mark.parametrize("step", ["send", "recv"])
def test_ctrl_c_within_a_message_stops_the_turn_and_the_next_one_runs(
    step: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{step}_multipart"
    whole = getattr(zmq.Socket, name)

    def interrupted(socket: Any, *arguments: Any, **options: Any) -> Any:
        if socket.type != zmq.DEALER:  # the server's
            return whole(socket, *arguments, **options)
        if step == "send":
            socket.send(arguments[0][0], zmq.SNDMORE)
        else:
            socket.recv(zmq.DONTWAIT)
        monkeypatch.undo()
        raise KeyboardInterrupt

    if step == "recv":
        server.faults[3] = "hold"
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        monkeypatch.setattr(zmq.Socket, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(game.turn("Mia waves."))
        assert len(list(game.turn("Mia runs."))) == 8 and game.turns == 1


def test_turn_as_a_context_is_cancelled_at_its_end(make_client: MakeClient, server: FakeServer) -> None:
    server.faults[3] = "hold"
    with make_client(server.address, timeout_s=5) as client:
        game = client.open()
        with game.turn("Mia waves.") as turn:
            assert turn.number is None and next(turn).seq == 0 and turn.number == 1
        assert server.kinds()[-1] == "cancel"
        with game.turn("Mia runs.") as turn:
            events = list(turn)
        assert isinstance(events[-1], Done) and server.kinds().count("cancel") == 1


def test_token_is_not_shown(server: FakeServer) -> None:
    with Client(server.address, timeout_s=5) as client:
        game = client.open()
        assert game.token not in repr(game) and game.session in repr(game)
