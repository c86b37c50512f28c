"""Whatever greedy clients do, a polite player is never refused and waits at most twice as long as would be fair."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from simulated_server import SHOT, Game, Listener, SimulatedServer, SimulatedWorker

from animegamer_rt.serving.server.dispatch import PREDICTION_TURNS
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.wire.codec import Message

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
