"""A game is developed without a model: pictures of any size, and each error when a sentence asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer, refusal

from animegamer_client import Client, Frame, Restarting, ServerRefused, Understood
from animegamer_rt.serving.server.rehearsal import ENDED, REFUSED


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The bundle pocket, of another size."""
    folder = tmp_path_factory.mktemp("rehearsal")
    with LiveServer(Path("pocket"), folder, "--frame-size", "200x120", device="simulated:0.05") as server:
        yield server.ready()


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(f"tcp://127.0.0.1:{server.port}", timeout_s=60) as client:
        yield client


def test_pictures_have_the_size_that_was_asked_for(client: Client) -> None:
    bundle = client.connect().bundle
    assert (bundle.width, bundle.height) == (200, 120)
    frames = [event for event in client.open(seed=3).turn("Mirel waves.") if isinstance(event, Frame)]
    assert [frame.pixels.shape for frame in frames] == [(120, 200, 3)] * 17


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--frame-size", "720"), "--frame-size: not a frame size; found '720'; expected WIDTHxHEIGHT"),
        (("--frame-size", "8192x16"), "16 to 4096 each"),
        (("--frame-size", "720x480", "--device", "cpu"), "only simulated engines have frames of any size"),
    ],
)
def test_a_size_that_cannot_be_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    code, text = refusal(Path("pocket"), tmp_path / "state", *options)
    assert code == 2 and said in text


def test_each_error_comes_when_a_sentence_asks_for_it_and_costs_no_turn(client: Client) -> None:
    game = client.open(seed=3)
    for code in (*REFUSED, *ENDED):
        with pytest.raises(ServerRefused) as refused:
            list(game.turn(f"Mirel waves. Fail: {code}"))
        assert refused.value.code == code and game.turns == 0
    with pytest.raises(
        ServerRefused, match="no such fault can be rehearsed; found weather; expected worker_lost, busy"
    ):
        list(game.turn("Mirel waves. fail: weather"))
    assert list(game.turn("Mirel waves.")) and game.turns == 1


def test_a_lost_worker_and_a_notice_are_those_of_any_game(client: Client, server: LiveServer) -> None:
    game = client.open(seed=3)
    events = list(game.turn("Mirel waves. fail: worker_lost"))
    assert [event.attempt for event in events if isinstance(event, Restarting)] == [1]
    assert len([event for event in events if isinstance(event, Frame)]) == 17 and game.turns == 1
    assert server.status()["worker"]["restarts"] == 1
    notices = [event.notice for event in game.turn("Mirel rides a unicorn.") if isinstance(event, Understood)]
    assert notices and "unicorn" in str(notices[0])
