"""Runs the jobs: queues them, passes the workers' events on, stores turns, sends `done`.

Knows the order of a job's life. Requests are in `handlers`, which worker gets which job in `dispatcher`, limits in
`job_queue`.

- A turn's result is stored, in one transaction, while its frames are decoded, and confirmed after them, before `done`.
  If the frames fail to come, the turn is removed again before the client gets the error. A turn that was not confirmed
  when the server was killed is deleted when the store is opened: a session holds only turns that were `done`. Writing
  the shot takes up to ten times as long as confirming, so it is not left until after the last frame.
- When a worker dies, another one, or its next process, gets its jobs again. Events that were sent are not sent twice.
- A turn that was played ahead is answered at once, from what the worker said of it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from animegamer_rt.errors import AnimeGamerError, ProtocolError, StoreError
from animegamer_rt.serving.store import Store, StoredSession
from animegamer_rt.serving.wire import MAX_FILES, STAGES, Message
from animegamer_rt.serving.wire.worker_messages import (
    ExportFinished,
    GameStarted,
    JobFailed,
    PredictedShots,
    TurnFinished,
    TurnResult,
)

from .ahead import AheadTurn, AheadTurns
from .clients import Client
from .dispatcher import Dispatcher
from .exports import ExportFolders, delete_export
from .job_errors import degraded, fault, stopped, worker_error
from .job_messages import export_message, start_message, turn_message
from .job_queue import JobQueue
from .jobs import Job, JobState, PictureOpening, Subscriber
from .log_lines import about
from .metrics import Metrics
from .options import ServeOptions
from .removals import TurnRemovals
from .worker_process import MAX_FAILURES, WorkerProcess
from .workers import Workers

PREDICT_AGAIN_S = 1.0
"""Allowed for each shot that is predicted again, or twice what predicting takes, whichever is more."""

CHECK_S = 0.05
"""How often deadlines are looked at: that takes all jobs, and the loop goes round for every message."""

PICTURES = ("frame", "clip")

log = logging.getLogger(__name__)


class Scheduler:
    """Every job from its admission to its last message."""

    def __init__(
        self,
        options: ServeOptions,
        store: Store,
        queue: JobQueue,
        workers: Workers,
        metrics: Metrics,
        ahead: AheadTurns,
    ) -> None:
        self._store, self._queue, self._ahead = store, queue, ahead
        self._workers, self._metrics = workers, metrics
        self._dispatcher = Dispatcher(queue, workers, metrics, ahead, self._job_message, self._fail)
        self._checked_at: float | None = None
        self.removals = TurnRemovals(store)
        self.exports = ExportFolders(options.state_dir)

    def admit(self, job: Job, now: float) -> None:
        """Queue a job, whose limits the caller has checked, and tell its client its place."""
        ready = self._take_ready(job)
        self._queue.add(job)
        if ready is not None:
            self._play_ready(job, ready, now)
        elif job.kind in ("turn", "replay"):
            job.publish(self._accepted(job, self._queue.place(job)))
        self.dispatch(now)

    def dispatch(self, now: float) -> None:
        """See that each worker has the job that it runs and the one after it."""
        self._dispatcher.dispatch(now)

    def on_worker_message(self, worker: WorkerProcess, message: Message, now: float) -> None:
        """Handle what a worker says of the job that it runs. Messages of a job that was stopped are ignored."""
        ahead, job = self._ahead.running, self._dispatcher.running_at(worker)
        if ahead is not None and ahead.job.id == message.parent:
            if self._ahead.on_message(message, now):
                self._dispatcher.job_ended(worker, ahead.job)
                self.dispatch(now)
        elif job is not None and message.parent == job.id:
            self._hear(job, message, now)

    def _hear(self, job: Job, message: Message, now: float) -> None:
        if message.type in (PredictedShots.TYPE, "state"):
            job.predicts_again = False
        try:
            self._process(job, message, now)
        except Exception:  # whatever is wrong with one job ends that job alone
            log.exception("what the worker said of job %s could not be handled", job.id)
            if not job.over:
                self._stop(job, fault())

    def _process(self, job: Job, message: Message, now: float) -> None:
        if message.type in (TurnFinished.TYPE, JobFailed.TYPE):
            if job.worker is not None:  # one that was ready is at none
                self._dispatcher.job_ended(job.worker, job)
                self._ahead.postpone(now)
            if message.type == JobFailed.TYPE:
                self._fail(job, worker_error(job, JobFailed.from_message(message)))
            else:
                self._finish(job, message, now)
            self.dispatch(now)
        elif message.type == TurnResult.TYPE:
            self._store_turn(job, TurnResult.from_message(message))
        elif message.type == PredictedShots.TYPE:
            self._store_shots(job, PredictedShots.from_message(message))
        elif job.kind == "export" and message.type == "progress":
            job.notify(replace(message, seq=None))
        elif message.type == "understood" and job.last_seq == 0:  # it has no `seq`, and comes before the first
            job.publish(replace(message, id=None))
        elif message.seq is not None and message.seq > job.last_seq:
            job.last_seq = message.seq
            if message.type in PICTURES and not job.pictured:
                job.pictured = True
                self._metrics.first_picture(max(0.0, now - job.accepted_at))
            job.publish(replace(message, session=job.session, turn=job.turn, id=None))

    def on_worker_death(self, worker: WorkerProcess, reason: str, now: float) -> None:
        """Its jobs wait for whoever is free. The one that it ran is over if it was stopped or cost too many workers."""
        self._metrics.worker_restarted(worker.number)
        ahead, running = self._ahead.running, self._dispatcher.running_at(worker)
        ahead_died = ahead is not None and ahead.job.worker is worker and self._ahead.worker_died()
        for job in self._queue.jobs:
            if job.worker is worker:
                if job.state is JobState.STORED:
                    self._remove_turn(job)
                job.lose_worker()
        if running is not None:
            running.worker_deaths += not ahead_died
            if running.stop_error is not None:
                self._fail(running, running.stop_error)
            elif running.worker_deaths >= MAX_FAILURES:
                what = f"the worker died {running.worker_deaths} times on this turn"
                do = "send another instruction; the operator finds the reason in worker.log"
                self._fail(running, ProtocolError(what, code="worker_failed", found=reason, do=do))
            elif running.kind != "start":  # its client knows no session yet that `restarting` could name
                fields = {"attempt": max(1, running.worker_deaths), "retry_in_s": self._workers.retry_in_s(now)}
                running.notify(Message("restarting", fields))
        elif self._workers.degraded:
            # No worker can even start, so no job is kept waiting.
            for job in self._queue.jobs:
                self._fail(job, degraded(self._workers))

    def stop_overdue(self, now: float) -> None:
        """Stop the jobs that are past their deadline. While the queue is held up, nobody's time in it runs."""
        if self._checked_at is not None and now - self._checked_at < CHECK_S:
            return
        running = self._queue.running
        if self._checked_at is not None and running and all(job.holds_up for job in running):
            for job in self._queue.waiting:
                job.postpone_deadline(max(0.0, now - max(self._checked_at, job.accepted_at)))
        self._checked_at = now
        for job in self._queue.overdue(now):
            self._stop(job, stopped(job, "deadline"))

    def cancel(self, session: str) -> bool:
        """Stop the session's job, and return whether there was one. Its error follows once it has stopped."""
        job = self._queue.of_session(session)
        if job is None:
            return False
        self._stop(job, stopped(job, "cancelled"))
        return True

    def subscribe(self, job: Job, subscriber: Subscriber) -> None:
        """Send a job's events to another connection (or request) from now on."""
        self._queue.move(job, subscriber.client)
        job.subscribe(subscriber)

    def client_gone(self, client: Client) -> None:
        """A connection is gone: its jobs wait behind others, and the oldest of too many such jobs are given up."""
        for job in self._queue.client_gone(client):
            what, do = "the connection was lost and others wait", "send the turn again"
            self._stop(job, ProtocolError(what, code="busy", do=do))

    def end_all(self) -> None:
        """End every job: the server stops now."""
        for job in self._queue.jobs:
            self._fail(job, stopped(job, "draining"))
        self.removals.finish_all()

    def as_done(self, session: StoredSession) -> StoredSession:
        """The session without a turn that is stored but not done. Raises StoreError."""
        running = self._queue.of_session(session.id)
        if running is not None and running.state is JobState.STORED and running.turn is not None:
            return self.removals.until(session, running.turn - 1)
        return self.removals.hide(session)

    def _stop(self, job: Job, error: AnimeGamerError) -> None:
        self._dispatcher.cancel(job)
        if job.at_worker and job in self._queue.running:
            job.stop_error = job.stop_error or error  # sent once the worker has stopped
        else:
            self._fail(job, error)

    def forget_ahead(self, session: str) -> None:
        """The session was changed or closed: no turn of it is ready."""
        self._ahead.forget(session)
        if self._ahead.running is not None and self._ahead.running.job.session == session:
            self._dispatcher.stop_ahead()

    def _take_ready(self, job: Job) -> AheadTurn | None:
        if job.kind != "turn" or not self._ahead.has(job):
            return None
        try:
            return self._ahead.take(job, self._job_message(job), self._workers.engines)
        except AnimeGamerError:  # it will be told in its turn
            return None

    def _play_ready(self, job: Job, ready: AheadTurn, now: float) -> None:
        """Answer a job with what the worker said of the same turn before. If the turn is under way, the job has it."""
        job.id, job.started_at = ready.job.id, max(now, job.accepted_at)
        if not ready.complete:
            self._queue.start(job)
            job.worker = ready.job.worker
        job.enter(JobState.DISPATCHED)
        job.publish(self._accepted(job, 0))
        for message in ready.answer:
            if not job.over:
                self._hear(job, message, now)

    def _accepted(self, job: Job, place: int) -> Message:
        seconds = self._metrics.medians().get("total", self._workers.warmup_s)
        fields = {
            "turn_id": job.turn_id,
            "place": place,
            "estimate_s": seconds * (place // self._queue.capacity + 1),
            "instruction": job.instruction,
            "replayed": job.kind == "replay",
        }
        return Message("accepted", fields, session=job.session, turn=job.turn, seq=0)

    def _job_message(self, job: Job) -> Message:
        """The job as a worker needs it. Raises StoreError, or ProtocolError when the session went on without it."""
        if job.opening is not None:
            return start_message(job, job.opening)
        self.removals.finish(job.session)
        if job.kind == "export":
            job.export_folder = job.export_folder or self.exports.next(job.session)
            return export_message(job, self._store)
        return turn_message(job, self._store, self._predict_again_s())

    def _predict_again_s(self) -> float:
        """The longest that a turn's shot may take to be predicted again."""
        return max(PREDICT_AGAIN_S, 2 * self._metrics.medians().get("predictor", self._workers.warmup_s))

    def _store_shots(self, job: Job, predicted: PredictedShots) -> None:
        """Store shots that were predicted again at once: even if the turn fails, nobody waits for them twice."""
        try:
            self._store.add_shots(job.session, predicted.shots)
        except StoreError as error:
            log.error("shots could not be stored: %s", error)

    def _store_turn(self, job: Job, result: TurnResult) -> None:
        if job.kind != "turn":
            return
        assert job.turn is not None
        try:
            self._store.finish_turn(
                job.session,
                job.turn,
                job.turn_id,
                job.instruction,
                result.game_state,
                result.character,
                result.shots,
                result.scene,
                result.engines,
                done=False,
            )
            job.enter(JobState.STORED)
        except StoreError as error:
            log.error("a turn could not be stored: %s", error)
            self._stop(job, error)

    def _finish(self, job: Job, message: Message, now: float) -> None:
        """The worker has sent everything of the job: send its last message."""
        if job.opening is not None:
            self._open_session(job, job.opening, GameStarted.from_message(message))
            return
        if job.kind == "turn" and job.state is not JobState.STORED:
            assert job.stop_error is not None, "a turn that could not be stored is being stopped"
            self._fail(job, job.stop_error)
            return
        try:
            if job.kind == "turn" and job.turn is not None:
                self._store.confirm_turn(job.session, job.turn)
            session = self._store.get(job.session)
            turns = session.turns if job.kind == "turn" else self.as_done(session).turns
            if job.export_folder is not None:
                job.export_folder = self.exports.complete(job.export_folder)
        except StoreError as error:
            self._fail(job, error)
            return
        job.enter(JobState.DONE)
        if job.kind == "export":
            files = list(ExportFinished.from_message(message).files)[:MAX_FILES]
            job.notify(Message("exported", {"folder": str(job.export_folder), "turns": turns, "files": files}))
            self.exports.delete_oldest(job.session)
        else:
            spent = TurnFinished.from_message(message).seconds
            seconds = {**{stage: spent[stage] for stage in STAGES if stage in spent}, "queue": job.queued_s}
            number = None if job.worker is None else job.worker.number
            self._metrics.turn_done(seconds, number)
            done = {"seconds": seconds, "turns": turns}
            job.publish(Message("done", done, session=job.session, turn=job.turn, seq=job.last_seq + 1))
            named = number if len(self._workers.all) > 1 else None
            log.info("%s done", job.kind, extra=about(job.session, job.turn, seconds.get("total"), named))
        self._queue.remove(job)
        if job.kind == "turn":
            self._ahead.turn_done(job.session)
        if job.late_subscriber is not None and job.kind != "export":
            self.admit(job.replay_for(job.late_subscriber, now), now)

    def _open_session(self, job: Job, opening: PictureOpening, started: GameStarted) -> None:
        """Open the session that starts from a picture, unless its client is gone: nobody has its token."""
        self._queue.remove(job)
        job.enter(JobState.DONE)
        try:
            if job.subscriber.client.connected:
                opening.open_session(started)
        except AnimeGamerError as error:
            job.subscriber.client.send_error(error, job.subscriber.parent)

    def _fail(self, job: Job, error: AnimeGamerError) -> None:
        self._queue.remove(job)
        if job.export_folder is not None:  # half a game is of no use
            delete_export(job.export_folder)
        if job.state is JobState.STORED:
            self._remove_turn(job)
        job.enter(JobState.FAILED)
        log.warning("%s lost: %s", job.kind, error.code, extra=about(job.session, job.turn))
        to = job.late_subscriber or job.subscriber
        to.client.send_error(error, to.parent, job.known_session, job.turn)

    def _remove_turn(self, job: Job) -> None:
        """Remove a stored turn whose frames will not come (from this worker)."""
        assert job.turn is not None
        self.removals.remove(job.session, job.turn)
