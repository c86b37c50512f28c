"""Several workers: which one gets a turn, what a death costs, and what each has of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scheduled import SHOT, Connection, Scheduled

from animegamer_rt.serving.server.jobs import Job
from animegamer_rt.serving.server.worker_shares import share_out, shortages, usable_gpus
from animegamer_rt.serving.store import Store
from animegamer_rt.state.game import CharacterState, GameState


class Two(Scheduled):
    """A server with two workers; each player has a connection and a session with one turn, which it replays."""

    def play(self, session: str | None = None, now: float = 0.0) -> Job:
        if session is None:
            session = self.store.open("tiny", "f", 7, 2)[0].id
            result: Any = GameState(1, 1, 1, 1), CharacterState(), {1: SHOT}
            self.store.finish_turn(session, 1, "1", "Mia waves.", *result)
        self.client = Connection()
        job = self.job("replay", session, self.client, 1, now)
        self.scheduler.admit(job, now)
        return job

    def finish(self, job: Job, now: float = 0.0) -> None:
        self.say(job.id, "finished", now, seconds={"total": 1.0})

    def given(self) -> list[list[str]]:
        return [worker.given for worker in self.workers]

    def lose(self, number: int, now: float = 0.0) -> None:
        """A worker dies, and its next process does not come for now."""
        worker: Any = self.workers[number]
        worker.die()
        worker.serving = False
        self.scheduler.on_worker_death(worker, "killed", now)
        self.scheduler.dispatch(now)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Two]:
    with Store(tmp_path / "state") as store:
        yield Two(store, workers=2)


def test_turns_are_spread_and_a_game_goes_on_where_it_is_warm(server: Two) -> None:
    one, two = server.play(now=1.0), server.play(now=2.0)
    assert server.given() == [[one.id], [two.id]]
    server.finish(one, 3.0)
    server.finish(two, 4.0)
    again_two, again_one = server.play(two.session, 5.0), server.play(one.session, 6.0)
    assert server.given() == [[again_one.id], [again_two.id]]


def test_places_and_estimates_count_all_workers(server: Two) -> None:
    server.finish(server.play())
    told = []
    for _ in range(5):
        server.play()
        told.append([server.client.heard[0].fields[name] for name in ("place", "estimate_s")])
    assert told == [[0, 1.0], [0, 1.0], [2, 2.0], [3, 2.0], [4, 3.0]]
    server.lose(0)
    server.play()
    assert server.client.heard[0].fields["estimate_s"] == 6.0, "all six, one after the other"


def test_the_turn_of_a_worker_that_dies_goes_to_the_next_that_is_free_before_those_that_wait(server: Two) -> None:
    first = server.play()
    lost_to = server.client
    second, third = server.play(), server.play()
    other = server.client
    server.say(first.id, "state", seq=1)
    server.lose(0)
    assert server.given() == [[], [second.id]], "what was next there is taken back"
    server.finish(second)
    assert server.given() == [[], [first.id, third.id]]
    server.say(first.id, "state", seq=1)
    server.say(first.id, "frame", seq=2)
    server.finish(first)
    assert lost_to.kinds() == ["accepted", "state", "restarting", "frame", "done"], "nothing twice"
    assert lost_to.heard[2].fields == {"attempt": 1, "retry_in_s": 0.0}, "it waits for no start"
    server.finish(third)
    assert other.kinds() == ["accepted", "done"]


def test_no_turn_waits_behind_an_export_while_another_worker_plays(server: Two) -> None:
    export = server.play()
    export.kind = "export"
    running, waits = server.play(), server.play()
    server.scheduler.dispatch(1.0)
    assert server.given() == [[export.id], [running.id, waits.id]]
    stands_since = waits.deadline_at
    for now in (2.0, 3.0):
        server.scheduler.stop_overdue(now)
    assert waits.deadline_at == stands_since, "its time runs: the queue moves on"


def test_a_turn_that_takes_far_too_long_holds_up_nobody(server: Two) -> None:
    server.finish(server.play())
    stuck = server.play(now=1.0)
    running, waits, last = server.play(now=1.5), server.play(now=1.5), server.play(now=1.5)
    assert server.given() == [[stuck.id, waits.id], [running.id, last.id]]
    server.scheduler.dispatch(3.2)
    assert server.given() == [[stuck.id], [running.id, waits.id]]
    server.finish(running, 3.3)
    assert server.given() == [[stuck.id], [waits.id, last.id]]


def test_a_worker_that_leaves_ends_its_turn_and_its_next_one_goes_elsewhere(server: Two) -> None:
    first, second, third = server.play(), server.play(), server.play()
    leaving: Any = server.workers[0]
    assert server.given() == [[first.id, third.id], [second.id]]
    leaving.serving = False
    server.scheduler.dispatch(1.0)
    assert server.given() == [[first.id], [second.id, third.id]]
    other: Any = server.workers[1]
    other.serving = False
    server.scheduler.dispatch(1.0)
    assert server.given() == [[first.id], [second.id]], "also where no worker is left"
    server.finish(first)
    server.finish(second)
    assert server.given() == [[], []]
    leaving.serving = True
    server.scheduler.dispatch(2.0)
    assert server.given() == [[third.id], []]


def test_cores_and_gpus_are_shared_out_and_shortages_are_said(tmp_path: Path) -> None:
    def cores(workers: int, count: int) -> list[tuple[int, ...]]:
        return [share.cores for share in share_out(workers, "cpu", tuple(range(count)), ())]

    assert cores(2, 5) == [(0, 1), (2, 3, 4)]
    assert cores(3, 2) == [(0,), (1,), (0,)]
    assert cores(1, 8) == [()], "a single worker keeps all"
    assert [share.threads for share in share_out(2, "cpu", (), ())][0] is not None, "where no core can be given out"
    assert [share.gpu for share in share_out(3, "torch", (0, 1, 2), ("4", "GPU-7c"))] == ["4", "GPU-7c", "4"]
    assert [share.gpu for share in share_out(2, "cpu", (0, 1), ("0", "1"))] == [None, None]
    for number in (0, 1):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    assert usable_gpus({}, tmp_path) == ("0", "1")
    assert usable_gpus({"CUDA_VISIBLE_DEVICES": "2, 3"}, tmp_path) == ("2", "3")
    assert not list(shortages(2, "cpu", 2, 0)) and not list(shortages(1, "torch", 1, 0))
    assert ["share cores" in said for said in shortages(3, "cpu", 2, 0)] == [True]
    assert ["share GPUs" in said for said in shortages(2, "torch", 2, 1)] == [True]
    assert ["could be counted" in said for said in shortages(2, "torch", 2, 0)] == [True]
