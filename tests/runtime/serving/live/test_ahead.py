"""Turns that are played before they are asked for: the same bytes, at once, and at nobody's cost."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_server import Game, LiveServer, RawClient, frames, until_timeout

from animegamer_client import Client, Frame, State
from animegamer_rt.serving.wire.codec import Message

TIMES = ("seconds", "seconds_left", "estimate_s", "turn_id")


@pytest.fixture(scope="module")
def eager(reading: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Plays two turns ahead of each session, and holds three in all: a tiny one takes 36 KiB."""
    with LiveServer(reading, tmp_path_factory.mktemp("eager"), device="cpu", ahead=2, ahead_mib=0.125) as server:
        yield server.ready()


def counted(server: LiveServer, name: str) -> float:
    with urllib.request.urlopen(server.metrics, timeout=10) as page:
        lines = page.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"animegamer_ahead_{name}_total ")))


def offer(player: RawClient, game: Game, most: int = 2) -> tuple[int, list[str]]:
    """The turn and the instructions of the first offer of so many of a game."""
    for _ in until_timeout():
        message = player.receive()
        if message.type == "offer" and message.session == game.session and len(message.fields["instructions"]) == most:
            assert message.turn is not None and message.parent is None
            return message.turn, list(message.fields["instructions"])
    raise AssertionError("nothing was offered")


def said(events: list[Message]) -> list[Any]:
    """All that a turn's messages say but its times."""
    fields = [{name: value for name, value in event.fields.items() if name not in TIMES} for event in events]
    return [(event.type, event.turn, event.seq, fields.pop(0), [*map(bytes, event.buffers)]) for event in events]


def test_a_ready_turn_is_the_same_bytes_as_without_it_and_counts_once(
    eager: LiveServer, reading: Path, tmp_path: Path
) -> None:
    ours = LiveServer(reading, tmp_path / "plain", device="cpu")
    with ours as plain, eager.client(minor=2) as player, plain.ready().client(minor=2) as other:
        game, same = player.open(seed=5), other.open(seed=5)
        for turn in (1, 2):
            number, texts = offer(player, game)
            assert number == turn and len(set(texts)) == 2
            used, text = counted(eager, "used"), texts[turn % 2]
            events = player.play(game, text)
            assert frames(events) and counted(eager, "used") == used + 1
            assert said(events) == said(other.play(same, text))
        offer(player, game)
        events = player.play(game, "Tobo runs.")
        assert said(events) == said(other.play(same, "Tobo runs.")), "a wrong guess has changed nothing"
        logs = [
            one.ask("list", {"token": its.token}, session=its.session).fields["turns"]
            for one, its in ((player, game), (other, same))
        ]
        assert [turn.pop("turn_id") for log in logs for turn in log] and logs[0] == logs[1] and len(logs[0]) == 3
        assert counted(plain, "offered") == 0, "a server without --ahead offers nothing"


def test_a_line_that_a_game_wished_for_starts_without_waiting(bundle: Path, tmp_path: Path) -> None:
    """A visual novel's two answers, wished for while the line before is played: either is there at once."""
    slow_s, choices = 2.0, ["Mia sits down in the meadow.", "Tobo dances in the meadow."]
    with LiveServer(bundle, tmp_path, device=f"simulated:{slow_s}", ahead=2) as server:
        with Client(f"tcp://127.0.0.1:{server.ready().port}", timeout_s=60) as client:
            game = client.open(seed=5)
            for event in game.turn("Mia waves."):
                if isinstance(event, State):
                    assert game.wish([*choices, "Nobody says this."]) == tuple(choices)
            for _ in until_timeout():
                if set(game.offers()) == set(choices):
                    break
            begun = time.monotonic()
            turn = game.turn(choices[1])
            assert len([event for event in turn if isinstance(event, Frame)]) == 17
            assert time.monotonic() - begun < slow_s / 2


def test_all_sessions_together_hold_no_more_than_the_memory_allows(eager: LiveServer) -> None:
    with eager.client(minor=2) as player:
        before = counted(eager, "offered") - counted(eager, "used")
        wasted = counted(eager, "wasted_seconds")
        games = [player.open(seed=seed) for seed in range(3)]
        held: dict[str | None, int] = {}
        for _ in until_timeout():
            if counted(eager, "offered") - counted(eager, "used") >= before + 6 and player.silent(100):
                break
            while not player.silent(0):
                message = player.receive()
                held[message.session] = len(message.fields["instructions"])
        assert sum(held.values()) == 3 and held.keys() == {game.session for game in games}
        assert counted(eager, "wasted_seconds") > wasted


def test_old_clients_hear_nothing_of_it(eager: LiveServer) -> None:
    with eager.client(minor=1) as player:
        game = player.open(seed=9)
        offered = counted(eager, "offered")
        player.play(game)
        for _ in until_timeout():
            if counted(eager, "offered") >= offered + 2:
                break
        assert player.silent(0)
        assert frames(player.play(game))
