"""Nobody waits for more than one turn of each other connection, whatever the others do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scheduled import SHOT, Connection, Scheduled

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.server.jobs import Job
from animegamer_rt.serving.store import Store
from animegamer_rt.state.game import CharacterState, GameState

LONGEST_S = 3.0
"""A slow player's turn; everybody else's takes a second."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "state") as store:
        yield store


def played_session(store: Store) -> str:
    """A session with one turn, which the players replay: nothing is written while the simulation runs."""
    session, _ = store.open("tiny", "f", 7, 2)
    store.finish_turn(session.id, 1, "1", "Mia waves.", GameState(1, 1, 1, 1), CharacterState(), {1: SHOT})
    return session.id


@dataclass(eq=False)
class Player:
    """One connection with its sessions. think_s: its longest pause after a turn; vanishes: once it has sent."""

    sessions: list[str]
    turn_s: float = 1.0
    think_s: float = 0.0
    vanishes: bool = False
    client: Connection = field(default_factory=Connection)
    sends_at: float = 0.0


class Simulation:
    """Players before a real scheduler, on a clock that jumps from one event to the next."""

    def __init__(self, store: Store, players: list[Player], seed: int, workers: int) -> None:
        self.server = Scheduled(store, queue=32, sessions=0, workers=workers)
        self.players, self.random, self.now = players, random.Random(seed), 0.0
        self.sent: dict[Job, tuple[float, Player]] = {}
        self.waits: list[tuple[Player, float]] = []
        self.refused: set[str] = set()

    def run(self, turns: int) -> None:
        ends_at: dict[Job, float] = {}
        while turns > 0:
            for player in self.random.sample(self.players, len(self.players)):
                if self.now >= player.sends_at:
                    self.send(player)
            for job in self.server.queue.running:
                if job not in ends_at:
                    at, player = self.sent[job]
                    self.waits.append((player, self.now - at))
                    ends_at[job] = self.now + player.turn_s
            assert len(ends_at) == len(self.server.workers) or not self.server.queue.waiting, "a worker is idle"
            sends_at = (player.sends_at for player in self.players if player.sends_at > self.now)
            self.now = min([*ends_at.values(), *sends_at])
            for job in [job for job, at in ends_at.items() if at <= self.now]:
                del ends_at[job]
                _, player = self.sent.pop(job)
                self.server.say(job.id, "finished", self.now, seconds={"total": player.turn_s})
                player.sends_at = self.now + player.think_s * self.random.random()
                turns -= 1

    def send(self, player: Player) -> None:
        """A turn for each session that has none."""
        player.sends_at = float("inf")
        for session in player.sessions:
            if self.server.queue.of_session(session) is not None:
                continue
            try:
                self.server.queue.check_free_space(player.client)
            except ProtocolError as error:
                assert error.code == "busy" and player.think_s == 0, "a player with nothing waiting always has a place"
                return
            job = self.server.job("replay", session, player.client, 1, self.now)
            self.sent[job] = self.now, player
            self.server.queue.use_session(session, 0.0, player.client)
            self.server.scheduler.admit(job, self.now)
        if player.vanishes:
            self.server.scheduler.client_gone(player.client)  # type: ignore[arg-type]
            player.client, player.sends_at = Connection(), self.now + 0.1 + self.random.random()
            self.sent = {job: about for job, about in self.sent.items() if job in set(self.server.queue.jobs)}


@pytest.mark.parametrize(("workers", "seed"), [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4)])
def test_a_polite_player_waits_at_most_for_one_turn_of_each_other_connection(
    store: Store, workers: int, seed: int
) -> None:
    def sessions(count: int) -> list[str]:
        return [played_session(store) for _ in range(count)]

    polite = [Player(sessions(1), think_s=5.0) for _ in range(3)]
    greedy = [Player(sessions(9)), Player(sessions(17))]
    others = [Player(sessions(1), turn_s=LONGEST_S, think_s=2.0), Player(sessions(6), vanishes=True)]
    simulation = Simulation(store, [*polite, *greedy, *others], seed, workers)
    simulation.run(400)
    longest = {player: max(wait for who, wait in simulation.waits if who is player) for player in polite}
    assert all(wait <= (len(simulation.players) - 1) * LONGEST_S / workers for wait in longest.values()), longest
    turns = [sum(who is player for who, _ in simulation.waits) for player in polite]
    assert min(turns) >= 20, f"and each has its turns, of 400: {turns}"


def test_a_second_game_on_a_connection_does_not_wait_for_the_first_to_go_on(store: Store) -> None:
    server, client = Scheduled(store), Connection()
    one, two, three = (played_session(store) for _ in range(3))

    def send(session: str) -> Job:
        job = server.job("replay", session, client, 1)
        server.queue.use_session(session, 0.0, client)
        server.scheduler.admit(job, 0.0)
        return job

    send(one)
    send(two)
    server.say(server.worker.given[0], "finished", seconds={})
    again = send(one)
    first = send(three)
    assert server.queue.waiting == [first, again], "a first turn goes before a second one"
    assert client.heard[-1].fields["place"] == 1


def test_the_place_in_accepted_counts_the_turns_that_go_before(store: Store) -> None:
    server, greedy, polite = Scheduled(store), Connection(), Connection()
    for _ in range(5):
        server.scheduler.admit(server.job("replay", played_session(store), greedy, 1), 0.0)
    assert [message.fields["place"] for message in greedy.heard] == [0, 1, 2, 3, 4]
    job = server.job("replay", played_session(store), polite, 1)
    server.scheduler.admit(job, 0.0)
    assert polite.heard[-1].fields["place"] == 1, "only what runs now"
    assert server.worker.given[1] == job.id, "the worker has it next, and not what it was given before"


def test_time_that_an_export_takes_is_not_charged_to_those_who_wait(store: Store) -> None:
    server, owner, patient, hasty = Scheduled(store), Connection(), Connection(), Connection()
    server.scheduler.admit(server.job("export", played_session(store), owner, 1), 0.0)
    waits = server.job("replay", played_session(store), patient, 1, deadline_s=100.0)
    asked = server.job("replay", played_session(store), hasty, 1, deadline_s=100.0)
    asked.requested_s = 100.0
    for job in (waits, asked):
        server.scheduler.admit(job, 0.0)
    for now in range(1000):
        server.scheduler.stop_overdue(float(now))
    assert patient.kinds() == ["accepted"], "the server's own limit stands still"
    assert hasty.kinds() == ["accepted", "deadline"], "a client's own does not"
    server.say(server.worker.given[0], "finished", files=[])
    for now in range(1000, 1110):
        server.scheduler.stop_overdue(float(now))
    assert server.queue.running == [waits] and waits.stop_error is not None


def test_deadline_is_not_postponed_by_time_of_an_export_before_the_turn_came(store: Store) -> None:
    server, owner, late = Scheduled(store), Connection(), Connection()
    server.scheduler.admit(server.job("export", played_session(store), owner, 1), 0.0)
    server.scheduler.stop_overdue(0.0)
    waits = server.job("replay", played_session(store), late, 1, deadline_s=5.0)
    waits.accepted_at, waits.deadline_at = 60.5, 65.5
    server.scheduler.admit(waits, 60.5)
    for now in (60.0, 61.0):  # the first round began before the turn came
        server.scheduler.stop_overdue(now)
    server.say(server.worker.given[0], "finished", files=[])
    server.scheduler.stop_overdue(65.9)
    assert late.kinds() == ["accepted"], "the half second beside the export does not count"
    server.scheduler.stop_overdue(66.0)
    assert waits.stop_error is not None


def test_time_in_which_a_resumed_game_is_predicted_again_is_not_charged_to_those_who_wait(store: Store) -> None:
    server, owner, patient = Scheduled(store), Connection(), Connection()
    session, _ = store.open("tiny", "f", 7, 2)
    for turn in range(1, 11):
        result = GameState(1, 1, 1, 1), CharacterState(), {turn: SHOT}
        store.finish_turn(session.id, turn, f"{turn}", "Mia waves.", *result)
    store.rewind(session.id, 7)
    server.scheduler.admit(server.job("turn", session.id, owner, 8), 0.0)
    running = server.worker.given[0]
    waits = server.job("replay", played_session(store), patient, 1, deadline_s=100.0)
    server.scheduler.admit(waits, 0.0)
    for now in range(500):
        server.say(running, "heartbeat")
        server.scheduler.stop_overdue(float(now))
    assert patient.kinds() == ["accepted"]
    server.say(running, "state", seq=1)
    for now in range(500, 610):
        server.scheduler.stop_overdue(float(now))
    assert patient.kinds() == ["accepted", "deadline"], "a turn that only runs does count"
