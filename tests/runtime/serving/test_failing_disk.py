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
from simulated_server import SimulatedServer

from animegamer_rt.serving.server.jobs import Job, Turn
from animegamer_rt.serving.store.store import FILE, Store

ENDS = ("done", "storage", "cancelled", "draining")
DISKS = {
    "full": "database or disk is full",
    "read-only": "attempt to write a readonly database",
    "broken": "disk I/O error",
}
"""Kind of disk -> SQLite's message."""
STATEMENTS = {
    "at the start": lambda sql: sql.startswith("BEGIN"),
    "in the middle": lambda sql: sql.startswith(("INSERT", "UPDATE", "DELETE")),
    "at the commit": lambda sql: sql == "COMMIT",
}
"""Where in a transaction it fails."""


class FailingDisk:
    """Stands in for the store's connection; what is not a failure goes through to SQLite."""

    def __init__(self, store: Store) -> None:
        self._connection: Any = store.database.connection
        self._fails: Callable[[str], bool] | None = None
        self._message = ""
        self.failed = 0
        store.database.connection = self  # type: ignore[assignment]

    def turns(self, kind: str, where: str) -> None:
        """From now on the disk is of a kind of DISKS, for the statements of STATEMENTS[where]."""
        self._message, self._fails = DISKS[kind], STATEMENTS[where]

    def works_again(self) -> None:
        """From now on the disk works."""
        self._fails = None

    @property
    def works(self) -> bool:
        """Whether it does now."""
        return self._fails is None

    def execute(self, sql: str, values: Any = ()) -> Any:
        if self._fails is not None and self._fails(sql.strip()):
            self.failed += 1
            raise sqlite3.OperationalError(self._message)
        return self._connection.execute(sql, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def after_a_kill(state: Path, copy: Path) -> Store:
    """The store as it is found when its server was killed just now."""
    shutil.copytree(state, copy)
    return Store(copy)


class Game:
    """One session, and a player of its turns on a server whose disk may fail."""

    def __init__(self, store: Store, state: Path) -> None:
        self.server = SimulatedServer(store, state)
        self.game, self.disk = self.server.open(), FailingDisk(store)
        self.session, self.token = self.game.session, self.game.token
        self.numbers = itertools.count(1)

    def send(self) -> Turn:
        """A turn, which the worker gets if the disk can be read and an earlier turn is not in its way."""
        self.game.turn(turn_id=f"turn {next(self.numbers)}")
        job = self.server.job(self.game)
        assert isinstance(job, Turn)
        return job

    def result(self, job: Job) -> None:
        if job.worker is not None:
            self.server.result()

    def end(self, job: Job) -> None:
        """The last frame was sent, or the worker has stopped as it was told to."""
        if job.worker is not None and job.stop_error is None:
            self.server.says("finished", seconds={})
        elif job.worker is not None:
            self.server.stopped()

    def play(self) -> None:
        job = self.send()
        self.result(job)
        self.end(job)

    @property
    def heard(self) -> int:
        """How many turns the player was told are done."""
        return self.game.client.kinds().count("done")


def stored(store: Store, session: str) -> int:
    turns = store.get(session).turns
    assert [turn.turn for turn in store.turns(session, 1, turns + 1)] == list(range(1, turns + 1))
    return turns


POINTS = {
    "at the result": ("fails", "result", "end"),
    "at the last frame": ("result", "fails", "end"),
    "when a stored turn is cancelled": ("result", "fails", "cancel", "end"),
    "when a stored turn's worker dies": ("result", "fails", "dies", "result", "end"),
    "when the server stops": ("result", "fails", "stops"),
}
"""When the disk begins to fail -> what happens to a turn from its start on, in order."""


@pytest.mark.parametrize("where", STATEMENTS)
@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("point", POINTS)
def test_what_was_heard_is_what_is_stored(tmp_path: Path, point: str, kind: str, where: str) -> None:
    state = tmp_path / "state"
    with Store(state) as store:
        game = Game(store, state)
        game.play()
        assert game.heard == 1
        job = game.send()
        server, core = game.server, game.server.core
        happens: dict[str, Callable[[], None]] = {
            "fails": lambda: game.disk.turns(kind, where),
            "result": lambda: game.result(job),
            "end": lambda: game.end(job),
            "cancel": lambda: server.carry_out(core.cancel(game.session)),
            "dies": server.dies,
            "stops": lambda: server.carry_out(core.end()),
        }
        for what in POINTS[point]:
            happens[what]()
        assert game.disk.failed, "this point does not touch the disk"
        ends = [kind for kind in game.game.client.kinds() if kind in ENDS]
        assert len(ends) == 2, "each turn has one end"
        shown = game.server.storage.as_done(store.get(game.session)).turns
        assert shown == game.heard, "while the disk fails"
        with after_a_kill(state, tmp_path / "killed") as found:
            assert stored(found, game.session) == game.heard
            assert found.resume(game.token).turns == game.heard
        game.disk.works_again()
        game.server.worker.given.clear()
        game.play()
        assert game.game.client.kinds()[-1] == "done" and stored(store, game.session) == game.heard
    with Store(state) as found:
        assert stored(found, game.session) == game.heard


def test_a_kill_between_a_turns_result_and_its_last_frame_costs_this_turn_alone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Store(state) as store:
        game = Game(store, state)
        game.play()
        job = game.send()
        game.result(job)
        with after_a_kill(state, tmp_path / "before") as found:
            assert stored(found, game.session) == game.heard == 1
            assert found.find_turn(game.session, job.turn_id) is None, "so that asking again plays it"
        game.end(job)
        with after_a_kill(state, tmp_path / "after") as found:
            assert stored(found, game.session) == game.heard == 2


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
            assert stored(found, game.session) == game.heard


def test_the_frames_of_a_turn_that_could_not_be_stored_leave_memory(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        game = Game(store, tmp_path / "state")
        job = game.send()
        game.disk.turns("full", "at the start")
        game.result(job)
        assert job.events and job.stop_error is not None and job.stop_error.__traceback__ is not None
        game.end(job)
        assert game.game.client.kinds()[-1] == "storage"
        assert job.events is None and job.stop_error is None, "its error's traceback leads to it: a reference cycle"
