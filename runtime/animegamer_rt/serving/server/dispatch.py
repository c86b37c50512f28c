"""Decides which worker gets which job next, from the queue and the state of the workers.

Changes no job: the core carries out each move and asks for the next.

- A worker has at most two jobs, the running one and the next, so that it never waits for the server. The first jobs of
  the queue are assigned next to the workers that will be free first. Such a job is taken back if another overtakes it,
  or if it would wait for a long job while other workers play.
- A free worker gets the first job of the queue. A job prefers the free worker that played its session last, which has
  its history warm, or else the one that was given a job longest ago.
- A worker that fails several turns in a row, of different sessions if several play, is replaced.
- Jobs under suspicion of killing workers run one at a time, and not while a worker is being replaced, so that the
  others play on.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.store.turns import CHECKPOINT_TURNS
from animegamer_rt.serving.wire.schema import STAGES

from .jobs import Export, Job
from .queue import GONE, JobQueue

MAX_FAILURES = 3
"""Workers that may die on one job; deaths in a row after which a worker counts as unable to start; turns in a row after
which a worker that failed them all is replaced."""
LATE = 2.0
"""A job running longer than this many median turns may take much longer: no job waits for its worker alone."""
REPLACED_S = 60.0
"""How long a job under suspicion waits at most for a worker's replacement: full-size engines take most of this."""
REFUSED_S, MAX_REFUSED_S = 60.0, 3600.0
"""How long a turn is refused that has killed MAX_FAILURES workers. It doubles with each further death."""
REMEMBERED_S = 600.0
"""How long deaths are remembered after the last one, or after the end of a refusal."""
REMEMBERED_TURNS = 100
PREDICT_AGAIN_S = 1.0
"""Allowed for each shot that must be predicted again, or twice the median predictor time, whichever is more."""
MIN_SLICE = 4
"""Fewest earlier turns predicted at a time."""
PREDICTION_TURNS = 0.2
"""A prediction's part of a turn's time before any turn was played; 0.14 in pocket on two CPU cores."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers' state as the core knows it.

    serving: numbers of those that accept jobs; count: of all. warm: one has been ready. degraded: none can be started.
    engines: their identity (`Engines.identity`); None before one was ready. warmup_s: seconds of the slowest warm-up
    turn. retry_in_s: seconds until one can take a returned job. draining: the server was asked to stop.
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
        """The server's state: starting, ready, degraded or draining."""
        if self.draining:
            return "draining"
        if self.degraded:
            return "degraded"
        return "ready" if self.warm else "starting"

    def check_ready(self) -> None:
        """Raises ProtocolError if no jobs are accepted now."""
        if self.state == "draining":
            raise ProtocolError("the server is stopping", code="draining", do="connect again later; sessions are kept")
        if self.state == "starting":
            raise ProtocolError("the engines are still loading", code="starting", do="try again in a moment")
        if self.state == "degraded":
            raise self.degraded_error()

    def degraded_error(self) -> ProtocolError:
        """The error of jobs while no worker can be started."""
        do = "try again later; the server keeps trying, and worker.log on the server has the reason"
        return ProtocolError("the worker cannot be started", code="degraded", found=self.last_error, do=do)


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker has started its next job by itself."""

    job: Job


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Take back a job that has not started from its worker."""

    job: Job


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give a job to a worker. runs: at once; otherwise after its current one."""

    job: Job
    worker: int
    runs: bool


class Dispatch:
    """The workers as the core sees them: the fleet, the sessions with warm history, and recent turn times."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.times = fleet, StageTimes()
        self._warm: dict[int, str] = {}
        """Worker -> the session of its last job."""
        self._given_at: dict[int, float] = {}
        self._died_at = -math.inf
        """When a worker last died that had been given a job."""
        self._failed: defaultdict[int, deque[str]] = defaultdict(lambda: deque(maxlen=MAX_FAILURES))
        """Worker -> the sessions whose turns it has failed since it last finished one."""
        self.failing: set[int] = set()
        """Workers that fail whatever they are given; each is being replaced."""

    @property
    def state(self) -> str:
        """The fleet's, but degraded while every worker that answers fails its turns."""
        fails = self.fleet.serving and not any(self.works(worker) for worker in self.fleet.serving)
        return "degraded" if fails and self.fleet.state == "ready" else self.fleet.state

    @property
    def ready(self) -> bool:
        """Whether a worker plays turns now."""
        return self.state == "ready" and bool(self.fleet.serving)

    def works(self, worker: int) -> bool:
        """Whether a worker plays turns now."""
        return worker in self.fleet.serving and worker not in self.failing

    def finished(self, worker: int) -> None:
        """Record that a worker has finished a job."""
        self._failed.pop(worker, None)

    def failed(self, worker: int, session: str, playing: int) -> bool:
        """Record that a worker failed a session's job by its own fault. Returns whether to replace it.

        playing: sessions of connected clients. One session may be at fault itself, unless no other is there.
        """
        failed = self._failed[worker]
        failed.append(session)
        if worker in self.failing or len(failed) < MAX_FAILURES or len({*failed}) < min(playing, MAX_FAILURES):
            return False
        self.failing.add(worker)
        return True

    def next_move(self, queue: JobQueue, now: float) -> Begun | TakeBack | HandOver | None:
        """The next move that keeps each worker supplied with a running job and a next one; None: nothing to do."""
        free = [worker for worker in self.fleet.serving if queue.running_at(worker) is None]
        for job in queue.waiting:
            if job.worker in free:
                return Begun(job)
        risks = self._may_risk_a_worker(queue, now)
        line = [job for job in queue.waiting if risks or not job.suspect]
        if free and line:
            return TakeBack(line[0]) if line[0].worker is not None else self._begin(line[0], free)
        wanted = self._next_jobs(line, queue, now)
        for job in queue.waiting:
            if job.worker is not None and job.worker != wanted.get(job):
                return TakeBack(job)
        for job, worker in wanted.items():
            if job.worker is None:
                return HandOver(job, worker, runs=False)
        return None

    def best(self, free: Sequence[int], session: str) -> int:
        """Which of some free workers gets a session's job."""
        return min(free, key=lambda worker: (self._warm.get(worker) != session, self._given_at.get(worker, 0.0)))

    def given(self, worker: int, session: str, now: float) -> None:
        """Record that a worker was given a session's job."""
        self._warm[worker], self._given_at[worker] = session, now

    def died(self, worker: int, now: float) -> None:
        """Record that a worker died: its warm history is lost, and its failures are the old process's."""
        if self._warm.pop(worker, None) is not None:  # one that never starts must not keep suspects waiting for ever
            self._died_at = now
        self._failed.pop(worker, None)
        self.failing.discard(worker)

    def median_s(self, stage: str) -> float:
        """Median seconds of a stage; before the first turn, those of the warm-up turn."""
        return self.times.medians().get(stage, self.fleet.warmup_s)

    def predict_again_s(self, shots: int) -> float:
        """Seconds allowed for predicting this many shots again."""
        return shots * max(PREDICT_AGAIN_S, 2 * self.median_s("predictor"))

    def _may_risk_a_worker(self, queue: JobQueue, now: float) -> bool:
        """Whether a job under suspicion may start: no other runs, and all workers are back or long overdue."""
        whole = len(self.fleet.serving) == self.fleet.count or now >= self._died_at + REPLACED_S
        return whole and not any(job.suspect for job in queue.running)

    def _begin(self, job: Job, free: Sequence[int]) -> HandOver:
        return HandOver(job, self.best(free, job.session), runs=True)

    def _next_jobs(self, line: Sequence[Job], queue: JobQueue, now: float) -> dict[Job, int]:
        """The jobs of the line to assign next, and their workers. One under suspicion waits for a free worker."""
        runs = {worker: job for worker in self.fleet.serving if (job := queue.running_at(worker)) is not None}
        in_time = [worker for worker, job in runs.items() if len(runs) == 1 or not self._is_late(job, now)]
        line = [job for job in line[: len(in_time)] if not job.suspect]
        if self.fleet.count > 1:  # two workers must never write one export: only a free worker gets it
            line = list(takewhile(lambda job: not isinstance(job, Export), line))
        stay = {job: job.worker for job in line if job.worker is not None and job.worker in in_time}
        others = [worker for worker in in_time if worker not in stay.values()]
        empty = iter(sorted(others, key=lambda worker: runs[worker].started_at or 0.0))
        return {job: stay[job] if job in stay else next(empty) for job in line}

    def _is_late(self, job: Job, now: float) -> bool:
        median_s = self.times.medians().get("total")
        ran_s = now - (now if job.started_at is None else job.started_at)
        return median_s is not None and ran_s > LATE * median_s


class StageTimes:
    """Seconds of recent turns by stage, kept sorted: every estimate needs the medians."""

    def __init__(self) -> None:
        self.turns_done = 0
        self._arrived: dict[str, deque[float]] = {stage: deque() for stage in STAGES}
        self._sorted: dict[str, list[float]] = {stage: [] for stage in STAGES}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Record a finished turn or replay."""
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

    def cost_turns(self, predictions: int, turns: int = 1) -> float:
        """The worker's time for rendering `turns` turns after predicting others again, in turns."""
        return turns + predictions * self._prediction_turns

    @property
    def slice_turns(self) -> int:
        """Predictions after which other jobs have their turn: as many as take about the time of one."""
        return max(MIN_SLICE, int(1 / self._prediction_turns)) if self._prediction_turns else CHECKPOINT_TURNS

    @property
    def _prediction_turns(self) -> float:
        """A prediction's time, in turns."""
        seconds = self.medians()
        return seconds["predictor"] / seconds["total"] if seconds.get("total") else PREDICTION_TURNS


@dataclass(slots=True)
class _Record:
    """Deaths of workers by instruction. If one instruction caused them all, only that one is refused."""

    deaths: Counter[str] = field(default_factory=Counter)
    refused_until: float = -math.inf
    forget_at: float = math.inf

    def add(self, instruction: str, now: float) -> None:
        self.deaths[instruction] += 1
        beyond = sum(self.deaths.values()) - MAX_FAILURES
        if beyond >= 0:
            self.refused_until = now + min(MAX_REFUSED_S, REFUSED_S * 2.0**beyond)
        self.forget_at = max(now, self.refused_until) + REMEMBERED_S

    def refuses(self, instruction: str, now: float) -> bool:
        return now < self.refused_until and (len(self.deaths) > 1 or instruction in self.deaths)


class Suspects:
    """The sessions and holders whose jobs recently killed workers: they are refused for a while, and others play on.

    Deaths are counted for the session and its holder (`shares`): neither sending a turn again nor another game helps.
    """

    def __init__(self) -> None:
        self._records: dict[object, _Record] = {}

    def blame(self, culprit: Job, queue: JobQueue, now: float) -> list[tuple[Job, ProtocolError]]:
        """A worker died running the job: suspect all of its session and holder. Returns those to refuse, and why."""
        self._records = {name: one for name, one in self._records.items() if now < one.forget_at}
        session, instruction = culprit.subject
        for name in (session, culprit.owner):
            if name is not GONE:
                self._records.setdefault(name, _Record()).add(instruction, now)
        for job in queue.jobs:
            job.suspect = self.suspects(job, now)
        return [(job, refused) for job in queue.waiting if (refused := self.refusal(job, now)) is not None]

    def acquit(self, job: Job) -> None:
        """The job was finished, so something else killed the workers that died on it."""
        session, instruction = job.subject
        for name in (session, job.owner):
            if (record := self._records.get(name)) is not None:
                record.deaths.pop(instruction, None)
                if not record.deaths:
                    del self._records[name]

    def suspects(self, job: Job, now: float) -> bool:
        """Whether the job may kill a worker, as others of its session or holder did."""
        return any(now < record.forget_at for record in self._of(job))

    def refusal(self, job: Job, now: float) -> ProtocolError | None:
        """The error of a job that is refused now; None if it may run."""
        instruction = job.subject[1]
        refusing = [record for record in self._of(job) if record.refuses(instruction, now)]
        if not refusing:
            return None
        longest = max(refusing, key=lambda record: record.refused_until)
        deaths, wait = sum(longest.deaths.values()), f"wait {math.ceil(longest.refused_until - now)} s"
        if len(longest.deaths) == 1:
            what, do = f"{deaths} workers died on this {job.NOUN}", f"send another instruction, or {wait}"
        else:
            what, do = f"{deaths} workers died on turns of this game or connection", wait
        return ProtocolError(what, code="worker_failed", do=f"{do}; worker.log on the server has the reason")

    def _of(self, job: Job) -> Iterator[_Record]:
        for name in (job.subject[0], job.subscriber.client.holder):
            if (record := self._records.get(name)) is not None:
                yield record
