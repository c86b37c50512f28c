"""What all clients share, nobody can take from the others: a polite player waits at most twice as long as is fair."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_server import SHOT, Game, Listener, SimulatedServer, SimulatedWorker

from animegamer_rt.serving.server.clients import Client, Clients
from animegamer_rt.serving.server.dispatch import PREDICTION_TURNS
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


TURN_S = 1.0
HOLDERS = 3
"""Greedy players, each with several connections."""


class Greedy:
    """A player who asks for all that a client may ask for, on as many connections as it likes."""

    def __init__(self, server: SimulatedServer, name: str, chance: random.Random) -> None:
        self.server, self.name, self.random = server, name, chance
        self.long = server.played(130, Listener(holder=name))
        self.games = [self.long]

    def act(self) -> None:
        """One request, which may be refused."""
        game = self.random.choice([self.long, *self.games[-20:]])
        match self.random.randrange(8):
            case 0 | 1:
                game.client = self.random.choice([game.client, Listener(holder=self.name)])
                self.server.ask(game.client, Message("open", {"seed": 1}, "open"))
                self.keep(game)
            case 2:
                game.turn()
            case 3 | 4:
                game.ask("replay", of_turn=self.random.randint(1, max(1, game.turns)))
            case 5:
                game.ask("export")
            case 6:
                game.ask("branch", turn=self.random.randint(0, game.turns))
                self.keep(game)
            case 7:
                game.ask("cancel")
                if self.random.random() < 0.3:
                    self.server.vanishes(game.client)

    def keep(self, game: Game) -> None:
        opened = game.client.heard[-1]
        if opened.type == "opened" and opened.session is not None:
            self.games.append(Game(self.server, game.client, opened.session, opened.fields["token"]))


def work(worker: SimulatedWorker) -> float:
    """How long the worker's job takes, in seconds."""
    fields, turn = worker.job.fields, worker.job.turn
    assert turn is not None
    predicts = turn - 1 - fields["omitted_turns"] - len([key for key in fields["shots"] if int(key)])
    return TURN_S * (predicts * PREDICTION_TURNS + (fields["kind"] != "predict"))


def end(server: SimulatedServer, worker: SimulatedWorker) -> None:
    """A worker ends its job, as it was told to or with its result."""
    job, fields = worker.job, worker.job.fields
    assert job.turn is not None
    if job.id in worker.cancelled:
        server.stopped(worker)
        return
    last = job.turn - (fields["kind"] == "predict")
    shots = {str(turn): SHOT for turn in range(max(1, last - 1), last + 1)}
    seconds = {"total": TURN_S, "predictor": TURN_S * PREDICTION_TURNS}
    if fields["kind"] == "turn":
        if server.core.queue.running_at(worker.number).NOUN == "turn":  # type: ignore[union-attr]
            server.result(worker)
        server.says("finished", worker, seconds=seconds)
        return
    if fields["kind"] == "export":
        Path(fields["folder"]).mkdir(exist_ok=True)
    if fields.get("turns") != 0:
        server.says("shots", worker, shots=shots)
    done = fields["kind"] == "export" and job.turn >= fields["turns"]
    server.says(*(("finished",) if done else ("part",)), worker, **({"files": []} if done else {}))


@pytest.mark.parametrize(("workers", "seed"), [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)])
def test_a_polite_player_waits_at_most_twice_as_long_as_is_fair(tmp_path: Path, workers: int, seed: int) -> None:
    chance = random.Random(seed)
    with Store(tmp_path / "state") as store:
        server = SimulatedServer(store, tmp_path, workers=workers, sessions=16, export_turns=0, turns_per_minute=600)
        crowd = [Greedy(server, f"greedy {number}", chance) for number in range(HOLDERS)]
        polite, ends_at, waits = server.open(), dict[SimulatedWorker, float](), list[float]()
        asked_at: float | None = None
        for _ in range(400):
            for greedy in crowd:
                greedy.act()
            if server.job(polite) is None:
                if chance.random() < 0.1:
                    polite.ask("close")
                    polite = server.open(polite.client)
                polite.turn()
                assert polite.client.kinds()[-1] == "accepted", "it is never refused"
                asked_at = server.now
            for worker in server.workers:
                if worker.given and worker not in ends_at:
                    ends_at[worker] = server.now + work(worker)
                    if worker.job.session == polite.session and asked_at is not None:
                        waits.append(server.now - asked_at)
                        asked_at = None
            worker = min(ends_at, key=lambda one: ends_at[one])
            server.now = max(server.now, ends_at.pop(worker))
            end(server, worker)
    fair_s = (HOLDERS + 1) * TURN_S / workers  # a turn of each, and one of those whose connections are lost
    assert len(waits) > 400 * workers / (4 * HOLDERS)
    assert max(waits) <= 2 * fair_s, sorted(waits)[-5:]
