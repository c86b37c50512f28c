"""Whatever all clients share, nobody can take from the others: who has the most gives way first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_server import Game, Listener, SimulatedServer

from animegamer_rt.serving.server.clients import Client, Clients
from animegamer_rt.serving.server.metrics import Metrics
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.queue import SESSION_IN_USE_S
from animegamer_rt.serving.shares import FullError, Share, Worth
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.wire.codec import Message


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(Worth)), max_size=200))
def test_everybody_can_have_an_equal_part_of_a_resource(takes: list[tuple[int, Worth]]) -> None:
    share, held = Share[int](12), dict[int, int]()
    for key, (holder, worth) in enumerate([*takes, *[(6, Worth.USED)] * 2]):
        try:
            given_up = share.giver(holder)
        except FullError:
            assert list(held.values()).count(holder) >= 12 // len({*held.values(), holder}), "it has its part"
            continue
        if given_up is not None:
            share.drop(given_up)
            del held[given_up]
        share.set(key, holder, worth=worth)
        held[key] = holder
        assert share.total == len(held) <= 12


def refused(server: SimulatedServer, client: Listener) -> bool:
    server.ask(client, Message("open", {"seed": 1}, "open"))
    return "too_many_sessions" in client.kinds()[-1:]


def play(game: Game) -> None:
    game.turn()
    game.server.finish()


def test_sessions_that_nobody_plays_keep_nobody_out(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, sessions=4)
    crowd = [server.open() for _ in range(4)]
    play(crowd[0])
    newcomer, hog = server.open(), Listener()
    play(newcomer)
    assert not any(refused(server, hog) for _ in range(20)), "it pushes out its own"
    assert server.core.queue.sessions_in_use(server.now) >= {crowd[0].session, newcomer.session}
    play(crowd[1])
    assert crowd[1].client.kinds()[-1] == "done", "a game that made room is as playable as before"


@pytest.mark.parametrize("holder", [None, "a key or an address"])
def test_who_plays_more_games_than_others_makes_room_for_them(store: Store, tmp_path: Path, holder: str | None) -> None:
    server = SimulatedServer(store, tmp_path, sessions=4)
    shared = Listener()
    greedy = [server.open(Listener(holder=holder) if holder else shared) for _ in range(4)]
    for game in greedy:
        play(game)
    first, second = server.open(), server.open()
    play(first)
    play(second)
    assert refused(server, greedy[-1].client), "it has as many as all others together"


def test_sessions_of_lost_connections_and_of_the_last_hour_make_room(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, sessions=2)
    early, late = server.open(), server.open()
    play(early)
    play(late)
    assert refused(server, Listener()), "two players have one each"
    server.vanishes(early.client)
    assert not refused(server, Listener())
    server.now = SESSION_IN_USE_S + 1.0
    assert not server.core.queue.sessions_in_use(server.now)


class StuckSocket:
    """A socket whose clients do not read."""

    def send_multipart(self, *_: Any, **__: Any) -> None:
        raise zmq.Again


class Sockets:
    """Sockets that are not there. closed: whom the server disconnected."""

    def __init__(self) -> None:
        self.turns, self.control, self.closed = StuckSocket(), StuckSocket(), list[bytes]()

    def receive(self, _: object) -> tuple[bytes, list[bytes], None]:
        return b"flood", [], None

    def disconnect(self, routing: bytes) -> None:
        self.closed.append(routing)


def clients(**options: Any) -> tuple[Clients, list[bytes]]:
    sockets: Any = Sockets()
    return Clients(sockets, ServeOptions(**options), Metrics()), sockets.closed


def frame(client: Client, kib: int, delivery: str) -> None:
    client.send(Message("frame", buffers=(bytes(kib * 1024),)), delivery)


def test_the_slowest_reader_loses_its_frames_before_others_do() -> None:
    all_clients, _ = clients(send_queue_mib=1.0, send_queues_mib=2.0)
    slow, slower, reader = (all_clients._on_turns(name, None) for name in (b"slow", b"slower", b"reader"))
    for _ in range(9):
        frame(slower, 100, "slower's")
    for number in range(8):
        frame(slow, 100, f"turn {number}")
    for _ in range(4):
        frame(reader, 100, "reader's")
    assert slower.bytes < 300 * 1024 < slow.bytes and reader.bytes > 400 * 1024
    assert sum(client.bytes for client in (slow, slower, reader)) <= 2 * 2**20
    before = reader.bytes
    for turn in range(20):
        frame(slow, 200, f"greedy {turn}")
    assert reader.bytes == before, "who holds most drops his own"


def test_endless_requests_that_take_long_leave_time_for_the_workers() -> None:
    all_clients, _ = clients()
    ready: Any = {all_clients._sockets.turns, all_clients._sockets.control}
    handled = [name for _, name, _ in all_clients.requests(ready) if time.sleep(0.004) is None]
    assert 1 <= handled.count("T") <= 3 and 1 <= handled.count("C") <= 3, "a round takes 10 ms, however many wait"


def test_connections_without_a_job_make_room_and_then_those_of_whoever_has_most() -> None:
    all_clients, closed = clients(connections=4)
    player = all_clients._on_turns(b"player", None)
    player.use()
    hogs = [all_clients._on_turns(b"hog %d" % number, b"one address") for number in range(8)]
    assert closed == [b"hog 0", b"hog 1", b"hog 2", b"hog 3", b"hog 4"] and not any(hog.refused for hog in hogs)
    for hog in hogs[-3:]:
        hog.use()
    other = all_clients._on_turns(b"other", None)
    other.use()
    assert not other.refused and closed[-1] == b"hog 5"
    assert all_clients._on_turns(b"hog again", b"one address").refused
    assert all_clients._on_turns(b"third", None).refused is False
