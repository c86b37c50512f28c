"""Health is work done: a worker that fails turns is replaced, a turn that kills workers is refused, and nobody's time
runs while the server sleeps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from simulated_server import Game, Listener, SimulatedServer, SimulatedWorker

from animegamer_rt.errors import AnimeGamerError, BackendError, ConfigError, ProtocolError, StoreError
from animegamer_rt.serving.server.dispatch import REFUSED_S, REMEMBERED_S, REPLACED_S
from animegamer_rt.serving.server.effects import Lost
from animegamer_rt.serving.server.server import MAX_STEP_S, AwakeClock
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.wire.client_errors import client_text

LOAD_S, DEATH_S = 6.0, 0.2
"""Seconds until a dead worker serves again, and into a turn until it dies of poison; other turns take a second."""
PLAYED_S = 200.0


# A worker that answers, but fails


def fail(server: SimulatedServer, game: Game, code: str = "internal", worker: SimulatedWorker | None = None) -> None:
    game.turn()
    server.says("failed", worker, code=code, text="the worker failed")
    assert game.client.kinds()[-1] == code


def test_a_worker_that_fails_all_turns_is_replaced_and_the_server_says_it_is_degraded(server: SimulatedServer) -> None:
    games = [server.open() for _ in range(3)]
    dispatch = server.core.dispatch
    for game in games:
        assert dispatch.ready and not server.worker.replaced
        fail(server, game)
    assert server.worker.replaced and not dispatch.ready and dispatch.state == "degraded"
    assert [note.worker for note in server.noted if isinstance(note, Lost)] == [1, 1, 1]
    games[0].turn()
    server.dies()
    assert games[0].client.kinds()[-1] == "restarting"
    assert dispatch.ready and dispatch.state == "ready"
    server.finish()
    assert games[0].client.kinds()[-1] == "done", "the turn that the old process had is not to blame for its end"


@pytest.mark.parametrize("code", ["instruction", "picture", "cancelled", "storage"])
def test_a_worker_is_not_to_blame_for_what_it_was_given(server: SimulatedServer, code: str) -> None:
    for game in [server.open() for _ in range(4)]:
        fail(server, game, code)
    assert not server.worker.replaced and server.core.dispatch.ready


def test_one_session_that_always_fails_costs_no_worker_while_others_play(server: SimulatedServer) -> None:
    broken, other = server.open(), server.open()
    for _ in range(5):
        fail(server, broken)
    assert not server.worker.replaced
    other.turn()
    server.finish()
    server.vanishes(other.client)
    for _ in range(3):
        assert not server.worker.replaced
        fail(server, broken)
    assert server.worker.replaced, "alone it cannot tell who is at fault, and nobody else has to wait"


# Turns that kill workers


def killed(server: SimulatedServer, game: Game, text: str, times: int) -> None:
    """The game's turn kills as many workers, then is cancelled unless it was refused."""
    game.turn(text)
    for _ in range(times):
        server.dies()


def test_a_turn_that_kills_workers_is_refused_for_a_while_with_its_reason(server: SimulatedServer) -> None:
    game, other = server.open(), server.open()
    killed(server, game, "poison", 3)
    for _ in range(2):  # at once, and again
        assert game.client.heard[-1].fields == {
            "code": "worker_failed",
            "text": "3 workers died on this turn",
            "do": "send another instruction, or wait 60 s; worker.log on the server has the reason",
        }
        game.turn("poison")
    other.turn("poison")
    server.finish()
    game.turn("Mia waves.")
    server.finish()
    assert [each.client.kinds()[-1] for each in (game, other)] == ["done", "done"]
    server.tick(REFUSED_S)
    killed(server, game, "poison", 1)
    assert "wait 120 s" in game.client.heard[-1].fields["do"]
    server.tick(2 * REFUSED_S + REMEMBERED_S)
    killed(server, game, "poison", 2)
    assert game.client.kinds()[-1] == "restarting", "all is forgotten"


def test_workers_that_die_of_something_else_are_held_against_nobody(server: SimulatedServer) -> None:
    game = server.open()
    for _ in range(5):
        killed(server, game, "Mia waves.", 2)
        server.finish()
        assert game.client.kinds()[-1] == "done", "so it kills no worker"


@pytest.mark.parametrize("how", ["other words", "cancels", "another game"])
def test_who_kills_workers_again_and_again_is_refused_altogether(server: SimulatedServer, how: str) -> None:
    client, texts = Listener(), itertools.count()
    game, other = server.open(client), server.open()
    for _ in range(3):
        game.turn(f"poison {next(texts)}")
        server.dies()
        if how == "cancels" and server.core.queue.of_session(game.session):
            game.ask("cancel")
        if how == "another game":
            game.ask("cancel")
            game = server.open(client)
    game.turn("Mia waves.")
    if how == "other words":  # the first has killed all three
        server.finish()
        killed(server, game, "poison again", 1)
    assert "of this game or connection" in client.heard[-1].fields["text"]
    server.tick(600.0)
    game.turn("Mia waves.")
    server.finish()
    other.turn("poison 0")
    server.finish()
    assert [each.client.kinds()[-1] for each in (game, other)] == ["done", "done"]


def test_turns_under_suspicion_kill_one_worker_at_a_time(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, workers=2)
    client, polite = Listener(), server.open()
    for game in [server.open(client) for _ in range(4)]:
        game.turn("poison")
    for worker in server.workers:  # nobody could know
        server.dies(worker)
    assert sum(len(worker.given) for worker in server.workers) == 1
    polite.turn("Mia waves.")
    assert sorted(str(worker.instructions) for worker in server.workers) == ["['Mia waves.']", "['poison']"]
    server.dies(next(worker for worker in server.workers if worker.instructions == ["poison"]))
    assert client.kinds()[-4:] == ["worker_failed"] * 4, "those that wait are refused with it"
    assert server.core.queue.running == [server.job(polite)]


def test_a_turn_that_killed_a_worker_leaves_others_alone_until_it_is_back(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, workers=2)
    poisoner, polite = server.open(), server.open()
    poisoner.turn("poison")
    dead = next(worker for worker in server.workers if worker.given)
    [other] = [worker for worker in server.workers if worker is not dead]
    server.dies(dead, back=False)
    for _ in range(3):
        assert not other.given, "although it is free"
        polite.turn("Mia waves.")
        server.finish(other)
    dead.serving = True
    server.tick()
    assert [*dead.instructions, *other.instructions] == ["poison"]
    dead = dead if dead.given else other
    server.dies(dead, back=False)
    for _ in range(3):
        server.tick(REPLACED_S / 3)
        server.dies(dead, back=False)
    assert any(worker.given for worker in server.workers), "a worker that never comes back is not awaited"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_turn_under_suspicion_is_played_although_others_wait(store: Store, tmp_path: Path, workers: int) -> None:
    server = SimulatedServer(store, tmp_path, workers=workers)
    unlucky, others = server.open(), [server.open() for _ in range(4 * workers)]
    unlucky.turn("Mia waves.")
    for game in others:
        game.turn()
    server.dies(next(worker for worker in server.workers if worker.job.session == unlucky.session))
    for worker in [*server.workers] * 2 * len(others):
        played = next((game for game in others if game.session == worker.job.session), None)
        server.finish(worker)
        if played is None:
            break
        played.turn()
    assert unlucky.client.kinds()[-1] == "done"


class Table:
    """Polite players, each with one turn after the other, beside one who sends poison; clock and workers simulated."""

    def __init__(self, server: SimulatedServer) -> None:
        self.server = server
        self.polite = [server.played() for _ in range(3 * len(server.workers))]
        self.due: dict[SimulatedWorker, float] = {}
        """When a worker's turn ends, its process dies, or its next one serves."""
        self.sent: dict[str, float] = {}
        self.took: list[float] = []

    def play(self, poison: Callable[[float], object]) -> float:
        """Median seconds of a polite turn."""
        server = self.server
        for game in self.polite:
            self.send(game)
        while server.now < PLAYED_S:
            poison(server.now)
            for worker in server.workers:
                if worker.serving and worker.given and worker not in self.due:
                    poisoned = "poison" in worker.job.fields["instruction"]
                    self.due[worker] = server.now + (DEATH_S if poisoned else 1.0)
            server.tick(max(0.1, min(self.due.values()) - server.now))
            for worker, at in list(self.due.items()):
                if at <= server.now:
                    del self.due[worker]
                    self.end(worker)
        return median(self.took)

    def end(self, worker: SimulatedWorker) -> None:
        if not worker.serving:
            worker.serving = True
            self.server.tick()
        elif "poison" in worker.job.fields["instruction"]:
            self.server.dies(worker, back=False)
            self.due[worker] = self.server.now + LOAD_S
        else:
            session = str(worker.job.session)
            self.server.says("finished", worker, seconds={"total": 1.0})
            self.took.append(self.server.now - self.sent[session])
            self.send(next(game for game in self.polite if game.session == session))

    def send(self, game: Game) -> None:
        self.sent[game.session] = self.server.now
        game.ask("replay", of_turn=1)


class Poisoner:
    """Sends poison whenever it has no turn: at once or after pause_s, in the same words or others, in several games."""

    def __init__(self, server: SimulatedServer, pause_s: float = 0.0, words: bool = False, games: int = 0) -> None:
        self.server, self.pause_s, self.words = server, pause_s, words
        self.client, self.again_at, self.numbers = Listener(), 0.0, itertools.count()
        self.games = [server.open(self.client) for _ in range(games or 1)]

    def __call__(self, now: float) -> None:
        for game in self.games:
            if self.server.job(game) is None and now >= self.again_at:
                game.turn(f"poison {next(self.numbers) if self.words else ''}")
                self.again_at = now + self.pause_s


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "poison", [{}, {"pause_s": 10.0}, {"words": True}, {"words": True, "pause_s": 5.0}, {"games": 8}], ids=str
)
def test_a_poisoner_costs_the_polite_at_most_half_as_much_again(
    store: Store, tmp_path: Path, workers: int, poison: dict[str, Any]
) -> None:
    options = {"workers": workers, "turns_per_minute": 0}
    alone = Table(SimulatedServer(store, tmp_path, **options)).play(lambda now: None)
    server = SimulatedServer(store, tmp_path, **options)
    table = Table(server)
    assert table.play(Poisoner(server, **poison)) <= 1.5 * alone
    assert len(table.took) >= 0.8 * workers * PLAYED_S


# Time, and words


def test_time_that_the_server_slept_does_not_count() -> None:
    true = 100.0
    clock = AwakeClock(lambda: true)
    for awake, slept in ((0.1, 0.0), (0.3, 3600.0), (0.1, 4.5)):
        before = clock()
        true += awake
        assert clock() - before == pytest.approx(awake)
        true += slept
        assert clock() - before == pytest.approx(awake + min(slept, MAX_STEP_S))


def test_what_a_library_said_stays_in_the_log() -> None:
    def raised(kind: Callable[..., Exception], cause: Exception, **about: Any) -> Any:
        try:
            raise kind("the disk failed", found=str(cause), expected="room", do="make room", **about) from cause
        except AnimeGamerError as error:
            return error

    for cause in (OSError("secret"), RuntimeError("secret"), raised(ConfigError, ValueError("secret"))):
        for kind in (StoreError, BackendError, ConfigError, ProtocolError):
            error = raised(kind, cause, where="the disk")
            assert "secret" in str(error) and client_text(error) == "the disk: the disk failed; expected room"
    assert client_text(ConfigError("wrong", found="5")) == "wrong; found 5", "what the client itself sent"
