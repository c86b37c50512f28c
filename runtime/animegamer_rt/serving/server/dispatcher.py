"""Gives the workers their jobs: which worker gets which job, when one is taken back, and when a turn is played ahead.

Knows the queue's order and which workers serve; nothing of what a job says or stores.

- A worker has two jobs at most: the one that it runs and the next one, so that it never waits for the server. The jobs
  that are first in the line are next at the workers that will be free first. A job that is next at a worker is taken
  back if another goes before it, or if it would wait there for a long job while other workers play.
- A free worker gets the first job of the line, and a job goes to the free worker that played its session last, as the
  history is warm there; else to the one that was given a job longest ago.
- A job whose worker died goes before all that wait.
- While there is no job, a worker plays turns ahead (`ahead`). The first job that comes stops that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import takewhile

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import CANCEL

from .ahead import AheadTurns
from .job_errors import fault
from .job_queue import JobQueue
from .jobs import Job
from .metrics import Metrics
from .worker_process import WorkerProcess
from .workers import Workers

LATE = 2.0
"""A job that runs for so many times the median turn may take much longer: no other waits for its worker alone."""

log = logging.getLogger(__name__)


class Dispatcher:
    """message_of: a job as a worker needs it; it may raise AnimeGamerError. fail: ends a job with an error."""

    def __init__(
        self,
        queue: JobQueue,
        workers: Workers,
        metrics: Metrics,
        ahead: AheadTurns,
        message_of: Callable[[Job], Message],
        fail: Callable[[Job, AnimeGamerError], None],
    ) -> None:
        self._queue, self._workers, self._metrics, self._ahead = queue, workers, metrics, ahead
        self._message_of, self._fail = message_of, fail

    def dispatch(self, now: float) -> None:
        """See that each worker has the job that it runs and the one after it."""
        while True:
            serving = self._workers.serving
            for job in self._queue.waiting:
                if job.worker is not None and job.worker not in serving:  # its node is being drained
                    self._take_back(job)
            self._queue.capacity = max(1, len(serving))
            if not serving:
                return
            if self._queue.idle:
                self._play_ahead(now)
                return
            self._ahead.postpone(now)
            self.stop_ahead()
            if self._begin(serving, now) and self._line_up(serving, now):
                return

    def running_at(self, worker: WorkerProcess) -> Job | None:
        """The job that a worker runs."""
        return next((job for job in self._queue.running if job.worker is worker), None)

    def job_ended(self, worker: WorkerProcess, ended: Job) -> None:
        """A worker has said the last of a job."""
        worker.job_ended(has_next=any(job.worker is worker and job is not ended for job in self._queue.jobs))

    def cancel(self, job: Job) -> None:
        """Tell the worker that has a job, if one has, to stop it."""
        if job.worker is not None:
            job.worker.send(Message(CANCEL, session=job.session, turn=job.turn, id=job.id))

    def stop_ahead(self) -> None:
        """Tell the worker that plays a turn ahead, if one does, to stop it."""
        running = self._ahead.running
        if running is not None and not running.stopped and running.job.worker is not None:
            running.stopped = True
            running.job.worker.send(Message(CANCEL, id=running.job.id))

    def _begin(self, serving: Sequence[WorkerProcess], now: float) -> bool:
        """Give a job to each worker that runs none. Returns False if that failed: then a job is over."""
        free = [worker for worker in serving if self.running_at(worker) is None]
        for worker in list(free):
            job = next((job for job in self._queue.waiting if job.worker is worker), None)
            if job is not None:  # the worker has begun it by itself
                self._start(job, now)
                free.remove(worker)
        while free:
            job = next((job for job in self._queue.running if job.worker is None), None)
            if job is None:
                job = self._queue.next_waiting
                if job is None:
                    return True
                self._take_back(job)
                self._start(job, now)
            worker = self._best(free, job.session)
            free.remove(worker)
            if not self._give(job, worker, now):
                return False
        return True

    def _line_up(self, serving: Sequence[WorkerProcess], now: float) -> bool:
        """Give each worker the job after the one that it runs. Returns False if that failed: then a job is over."""
        wanted = self._next_jobs(serving, now)
        for job in self._queue.waiting:
            if job.worker is not None and job.worker is not wanted.get(job):
                self._take_back(job)
        return all(job.at_worker or self._give(job, worker, now) for job, worker in wanted.items())

    def _next_jobs(self, serving: Sequence[WorkerProcess], now: float) -> dict[Job, WorkerProcess]:
        """The jobs that are to be next at a worker; none while the job of a dead worker waits for whoever is free."""
        if any(job.worker is None for job in self._queue.running):
            return {}
        runs = {worker: job for worker in serving if (job := self.running_at(worker)) is not None}
        in_time = [worker for worker, job in runs.items() if len(runs) == 1 or not self._is_late(job, now)]
        line = self._queue.waiting[: len(in_time)]
        if len(self._workers.all) > 1:  # two workers must never write the same export: it goes to a free one only
            line = list(takewhile(lambda job: job.kind != "export", line))
        stay = {job: job.worker for job in line if job.worker is not None and job.worker in in_time}
        others = [worker for worker in in_time if worker not in stay.values()]
        empty = iter(sorted(others, key=lambda worker: runs[worker].started_at or 0.0))
        return {job: stay.get(job) or next(empty) for job in line}

    def _is_late(self, job: Job, now: float) -> bool:
        median_s = self._metrics.medians().get("total")
        ran_s = now - (now if job.started_at is None else job.started_at)
        return job.holds_up or (median_s is not None and ran_s > LATE * median_s)

    def _best(self, free: Sequence[WorkerProcess], session: str) -> WorkerProcess:
        return min(free, key=lambda worker: (worker.session != session, worker.given_at))

    def _start(self, job: Job, now: float) -> None:
        self._queue.start(job)
        if job.started_at is None:  # `now` is of the round's begin; the job may have come after it
            job.started_at = max(now, job.accepted_at)

    def _take_back(self, job: Job) -> None:
        if job.worker is not None:
            self.cancel(job)
            job.take_back()

    def _give(self, job: Job, worker: WorkerProcess, now: float) -> bool:
        """Give a job to a worker. Returns False if that failed: then the job is over."""
        try:
            worker.dispatch(self._message_of(job), now)
        except AnimeGamerError as error:
            self._fail(job, error)
            return False
        except Exception:  # whatever is wrong with one job ends that job alone
            log.exception("job %s could not be given to a worker", job.id)
            self._fail(job, fault())
            return False
        job.give_to(worker)
        return True

    def _play_ahead(self, now: float) -> None:
        engines = self._workers.engines
        try:
            job = self._ahead.next_job(now, engines)
            if job is None:
                return
            job.worker = self._best(self._workers.serving, job.session)
            message = self._message_of(job)
            job.worker.dispatch(message, now)
        except AnimeGamerError:  # nobody waits for it; a real turn that cannot be played is answered with the error
            return
        except Exception:  # a session that cannot be read ends nobody's game
            log.exception("a turn could not be played ahead")
            self._ahead.pause()
            return
        self._ahead.begun(job, message, engines, now)
