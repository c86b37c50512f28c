"""Whatever the disk does, at every point of a turn's life: the client heard what the store holds, also after a kill."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing_disk import DISKS, STATEMENTS, FailingDisk, after_a_kill
from scheduled import Connection, Scheduled

from animegamer_rt.serving.server.jobs import Job
from animegamer_rt.serving.store import FILE, Store

ENDS = ("done", "storage", "cancelled", "draining")


class Game:
    """One session, and a player of its turns on a server whose disk may fail."""

    def __init__(self, store: Store, state: Path) -> None:
        self.server, self.disk, self.player = Scheduled(store, state_dir=state), FailingDisk(store), Connection()
        self.session, self.token = store.open("tiny", "f", 7, 2)
        self.numbers = itertools.count(1)

    def send(self) -> Job:
        """A turn, which the worker gets if the disk can be read and an earlier turn is not in its way."""
        turn = self.server.scheduler.as_done(self.server.store.get(self.session.id)).turns + 1
        job = self.server.job("turn", self.session.id, self.player, turn)
        job.turn_id = f"turn {next(self.numbers)}"
        self.server.scheduler.admit(job, 0.0)
        return job

    def result(self, job: Job) -> None:
        if job.turn is not None and job.at_worker:
            self.server.settle(job.id, job.turn)

    def end(self, job: Job) -> None:
        """The last frame was sent, or the worker has stopped as it was told to."""
        if job.at_worker and job.stop_error is None:
            self.server.say(job.id, "finished", seconds={})
        elif job.at_worker:
            self.server.say(job.id, "failed", code="cancelled", text="")

    def play(self) -> None:
        job = self.send()
        self.result(job)
        self.end(job)

    @property
    def heard(self) -> int:
        """How many turns the player was told are done."""
        return self.player.kinds().count("done")


def stored(store: Store, session: str) -> int:
    turns = store.get(session).turns
    assert [turn.turn for turn in store.turns(session, 1, turns + 1)] == list(range(1, turns + 1))
    return turns


def fails_at_the_result(game: Game, fail: Callable[[], None]) -> None:
    job = game.send()
    fail()
    game.result(job)
    game.end(job)


def fails_at_the_last_frame(game: Game, fail: Callable[[], None]) -> None:
    job = game.send()
    game.result(job)
    fail()
    game.end(job)


def fails_when_a_stored_turn_is_cancelled(game: Game, fail: Callable[[], None]) -> None:
    job = game.send()
    game.result(job)
    fail()
    game.server.scheduler.cancel(game.session.id)
    game.end(job)


def fails_when_a_stored_turns_worker_dies(game: Game, fail: Callable[[], None]) -> None:
    job = game.send()
    game.result(job)
    fail()
    worker: Any = game.server.workers[0]
    worker.die()
    game.server.scheduler.on_worker_death(worker, "killed", 0.0)
    game.server.scheduler.dispatch(0.0)
    game.result(job)
    game.end(job)


def fails_when_the_server_stops(game: Game, fail: Callable[[], None]) -> None:
    job = game.send()
    game.result(job)
    fail()
    game.server.scheduler.end_all()


POINTS = [
    fails_at_the_result,
    fails_at_the_last_frame,
    fails_when_a_stored_turn_is_cancelled,
    fails_when_a_stored_turns_worker_dies,
    fails_when_the_server_stops,
]


@pytest.mark.parametrize("where", STATEMENTS)
@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
def test_what_was_heard_is_what_is_stored(
    tmp_path: Path, point: Callable[[Game, Callable[[], None]], None], kind: str, where: str
) -> None:
    state = tmp_path / "state"
    with Store(state) as store:
        game = Game(store, state)
        game.play()
        assert game.heard == 1
        point(game, lambda: game.disk.turns(kind, where))
        assert game.disk.failed, "this point does not touch the disk"
        ends = [kind for kind in game.player.kinds() if kind in ENDS]
        assert len(ends) == 2, "each turn has one end"
        shown = game.server.scheduler.as_done(store.get(game.session.id)).turns
        assert shown == game.heard, "while the disk fails"
        with after_a_kill(state, tmp_path / "killed") as found:
            assert stored(found, game.session.id) == game.heard
            assert found.resume(game.token).turns == game.heard
        game.disk.works_again()
        game.server.worker.die()
        game.play()
        assert game.player.kinds()[-1] == "done" and stored(store, game.session.id) == game.heard
    with Store(state) as found:
        assert stored(found, game.session.id) == game.heard


def test_a_kill_between_a_turns_result_and_its_last_frame_costs_this_turn_alone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Store(state) as store:
        game = Game(store, state)
        game.play()
        job = game.send()
        game.result(job)
        with after_a_kill(state, tmp_path / "before") as found:
            assert stored(found, game.session.id) == game.heard == 1
            assert found.find_turn(game.session.id, job.turn_id) is None, "so that asking again plays it"
        game.end(job)
        with after_a_kill(state, tmp_path / "after") as found:
            assert stored(found, game.session.id) == game.heard == 2


def test_a_power_cut_that_undid_what_was_not_synced_costs_no_turn_that_was_heard(tmp_path: Path) -> None:
    state, cut = tmp_path / "state", tmp_path / "cut"
    with Store(state) as store:
        game = Game(store, state)
        game.play()
        job = game.send()
        game.result(job)
        shutil.copytree(state, cut)
        game.end(job)
        assert game.heard == 2
    with contextlib.closing(sqlite3.connect(cut / FILE)) as file, file:
        file.execute("UPDATE store SET boot = 'before the power cut'")
    for _ in range(2):
        with Store(cut) as found:
            assert stored(found, game.session.id) == game.heard


def test_the_frames_of_a_turn_that_could_not_be_stored_leave_memory(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        game = Game(store, tmp_path / "state")
        job = game.send()
        game.disk.turns("full", "at the start")
        game.result(job)
        assert job.events and job.stop_error is not None and job.stop_error.__traceback__ is not None
        game.end(job)
        assert game.player.kinds()[-1] == "storage"
        assert job.events is None and job.stop_error is None, "its error's traceback leads to it: a reference cycle"
