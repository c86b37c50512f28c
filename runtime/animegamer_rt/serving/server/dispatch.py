"""Which worker gets which job next, from the line of jobs and what is known of the workers.

Knows which workers serve and how long turns take; changes no job: the core makes each move, and asks for the next.

- A worker has two jobs at most: the one that it runs and the next one, so that it never waits for the server. The jobs
  that are first in the line are next at the workers that will be free first. A job that is next at a worker is taken
  back if another goes before it, or if it would wait there for a long job while other workers play.
- A free worker gets the first job of the line, and a job goes to the free worker that played its session last, as the
  history is warm there; else to the one that was given a job longest ago.
- When a worker dies, the job that it ran goes before all that wait.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.wire import STAGES

from .jobs import Export, Job
from .queue import JobQueue

MAX_FAILURES = 3
"""Workers that may die on one job; deaths in a row after which a worker counts as one that cannot be started."""
LATE = 2.0
"""A job that runs for so many times the median turn may take much longer: no other waits for its worker alone."""
REMEMBERED_TURNS = 100


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the core is told of the workers.

    serving: numbers of those that take jobs now; count: of all. warm: one has been ready. degraded: none can be
    started. engines: what they are (`Engines.identity`); None before one was ready. warmup_s: seconds of the turn that
    the slowest played to warm up. retry_in_s: seconds until one can take a job that was given back. draining: the
    server was asked to stop.
    """

    serving: tuple[int, ...] = ()
    count: int = 1
    warm: bool = False
    degraded: bool = False
    engines: str | None = None
    warmup_s: float = 0.0
    last_error: str = ""
    retry_in_s: float = 0.0
    draining: bool = False

    @property
    def state(self) -> str:
        """The server's: starting, ready, degraded or draining."""
        if self.draining:
            return "draining"
        if self.degraded:
            return "degraded"
        return "ready" if self.warm else "starting"

    def check_ready(self) -> None:
        """Raises ProtocolError when no jobs are taken now."""
        if self.state == "draining":
            raise ProtocolError("the server is stopping", code="draining", do="connect again later; sessions are kept")
        if self.state == "starting":
            raise ProtocolError("the engines are still loading", code="starting", do="try again in a moment")
        if self.state == "degraded":
            raise self.degraded_error()

    def degraded_error(self) -> ProtocolError:
        """The error of a job while no worker can be started."""
        do = "try again later; the server goes on trying, and the operator finds the reason in worker.log"
        return ProtocolError("the worker cannot be started", code="degraded", found=self.last_error, do=do)


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker has begun its next job by itself."""

    job: Job


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Take a job back from the worker that it is next at."""

    job: Job


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give a job to a worker. runs: at once; else after the one that it has."""

    job: Job
    worker: int
    runs: bool


class Dispatch:
    """The workers as the core sees them: the fleet, the sessions whose history is warm, and the last turns' times."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.times = fleet, StageTimes()
        self._warm: dict[int, str] = {}
        """Worker -> the session of the job that it was given last."""
        self._given_at: dict[int, float] = {}

    def next_move(self, queue: JobQueue, now: float) -> Begun | TakeBack | HandOver | None:
        """The next thing to do so that each worker has the job that it runs and the one after it; None: all have."""
        serving = self.fleet.serving
        for job in queue.waiting:
            if job.worker is not None and job.worker not in serving:  # its node is being drained
                return TakeBack(job)
        free = [worker for worker in serving if queue.running_at(worker) is None]
        for job in queue.waiting:
            if job.worker in free:
                return Begun(job)
        if free:
            lost, first = next((job for job in queue.running if job.worker is None), None), queue.next_waiting
            if lost is not None:
                return HandOver(lost, self.best(free, lost.session), runs=True)
            if first is not None:
                return TakeBack(first) if first.worker is not None else self._begin(first, free)
        wanted = self._next_jobs(queue, now)
        for job in queue.waiting:
            if job.worker is not None and job.worker != wanted.get(job):
                return TakeBack(job)
        for job, worker in wanted.items():
            if job.worker is None:
                return HandOver(job, worker, runs=False)
        return None

    def best(self, free: Sequence[int], session: str) -> int:
        """The one of some free workers that a session's job goes to."""
        return min(free, key=lambda worker: (self._warm.get(worker) != session, self._given_at.get(worker, 0.0)))

    def given(self, worker: int, session: str, now: float) -> None:
        """Note that a worker was given a session's job."""
        self._warm[worker], self._given_at[worker] = session, now

    def died(self, worker: int) -> None:
        """Note that a worker died: nothing is warm there."""
        self._warm.pop(worker, None)

    def median_s(self, stage: str) -> float:
        """Median seconds of a stage; before the first turn, those of the turn that warmed the worker up."""
        return self.times.medians().get(stage, self.fleet.warmup_s)

    def _begin(self, job: Job, free: Sequence[int]) -> HandOver:
        return HandOver(job, self.best(free, job.session), runs=True)

    def _next_jobs(self, queue: JobQueue, now: float) -> dict[Job, int]:
        """The jobs that are to be next at a worker; none while the job of a dead worker waits for whoever is free."""
        if any(job.worker is None for job in queue.running):
            return {}
        runs = {worker: job for worker in self.fleet.serving if (job := queue.running_at(worker)) is not None}
        in_time = [worker for worker, job in runs.items() if len(runs) == 1 or not self._is_late(job, now)]
        line = queue.waiting[: len(in_time)]
        if self.fleet.count > 1:  # two workers must never write the same export: it goes to a free one only
            line = list(takewhile(lambda job: not isinstance(job, Export), line))
        stay = {job: job.worker for job in line if job.worker is not None and job.worker in in_time}
        others = [worker for worker in in_time if worker not in stay.values()]
        empty = iter(sorted(others, key=lambda worker: runs[worker].started_at or 0.0))
        return {job: stay[job] if job in stay else next(empty) for job in line}

    def _is_late(self, job: Job, now: float) -> bool:
        median_s = self.times.medians().get("total")
        ran_s = now - (now if job.started_at is None else job.started_at)
        return job.holds_up or (median_s is not None and ran_s > LATE * median_s)


class StageTimes:
    """Seconds of the last turns by stage, kept sorted: every estimate asks for the medians."""

    def __init__(self) -> None:
        self.turns_done = 0
        self._arrived: dict[str, deque[float]] = {stage: deque() for stage in STAGES}
        self._sorted: dict[str, list[float]] = {stage: [] for stage in STAGES}

    def add(self, seconds: Mapping[str, float]) -> None:
        """A turn, or a replay of one, was done."""
        self.turns_done += 1
        for stage, ordered in self._sorted.items():
            arrived, number = self._arrived[stage], seconds.get(stage, 0.0)
            if len(arrived) == REMEMBERED_TURNS:
                del ordered[bisect.bisect_left(ordered, arrived.popleft())]
            arrived.append(number)
            bisect.insort(ordered, number)

    def medians(self) -> dict[str, float]:
        """Median seconds by stage; empty before the first turn."""
        if not self.turns_done:
            return {}
        half = {stage: len(ordered) // 2 for stage, ordered in self._sorted.items()}
        return {stage: (one[~half[stage]] + one[half[stage]]) / 2 for stage, one in self._sorted.items()}
