"""Owns the queue, the workers' jobs and the speculative turns: decides which job runs where.

Pure except for the storage, which answers at once: each method takes an event and the time (seconds of the monotonic
clock) and returns effects for the server to carry out. Knows no sockets and no processes; a worker is a number.

- A turn's result is stored in one transaction while its frames are decoded, and confirmed after the last frame, before
  `done`. If the frames fail, the turn is removed before the client gets the error. A turn left unconfirmed by a killed
  server is deleted when the store is opened: a session holds only turns that were `done`. Writing the shot takes up to
  ten times as long as confirming, so it does not wait for the last frame.
- When a worker dies, another one, or its restarted process, gets its jobs: the one that it ran behind everybody else's,
  as it may kill the next one too (`Suspects`). Events already sent are not sent twice.
- While there is no job, a worker renders speculative turns; the first job stops it. If a speculative turn is requested,
  the worker's recorded messages are sent at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from animegamer_rt.errors import AnimeGamerError, ProtocolError, StoreError
from animegamer_rt.serving.wire.codec import Message, encode
from animegamer_rt.serving.wire.schema import CODES, MAX_FILES, STAGES
from animegamer_rt.serving.wire.worker_messages import (
    ExportFinished,
    GameStarted,
    JobFailed,
    PartFinished,
    PredictedShots,
    TurnFinished,
    TurnResult,
)

from . import rehearsal
from .ahead import AheadTurn, AheadTurns
from .clients import Client
from .dispatch import Begun, Dispatch, Fleet, HandOver, Suspects, TakeBack
from .effects import NO_FAULTS, Cancel, Counted, Done, Effect, Effects, Ended, Give, Logged, Lost, Replace, Started
from .guesses import Guesser
from .jobs import Export, Job, Played, Rendered, Start, Subscriber, Turn, fault, read_reply, stopped
from .options import ServeOptions
from .queue import JobQueue
from .storage import Storage

CHECK_S = 0.05
"""Interval between checks of the deadlines."""


class ServerCore:
    """All jobs from admission to their last message."""

    def __init__(self, options: ServeOptions, storage: Storage, guesser: Guesser) -> None:
        self._storage = storage
        self.queue, self.dispatch = JobQueue(options), Dispatch(Fleet(count=options.workers))
        self._suspects, self._effects = Suspects(), Effects()
        self._ahead = AheadTurns(options, storage, guesser, self._effects)
        self._ready_messages: deque[tuple[Turn, Message]] = deque()
        """Messages still to be processed for jobs served from ready turns: their pictures go out first."""
        self._checked_at: float | None = None

    # Events: each method returns the effects.
    def admit(self, job: Job, now: float) -> list[Effect]:
        """A client requests a job whose limits have been checked. The next `tick` dispatches it."""
        if (refused := self._suspects.refusal(job, now)) is not None:
            self._effects.send_error(job, refused)
            job.end()
        else:
            self._admit(job, now)
        return self._effects.take()

    def subscribe(self, job: Played, subscriber: Subscriber) -> list[Effect]:
        """Another connection or request follows a job from now on, after the events it has missed."""
        self.queue.move(job, subscriber.client.holder)
        for message in job.follow(subscriber):
            self._effects.deliver(job, message)
        return self._effects.take()

    def cancel(self, session: str) -> list[Effect]:
        """A client wants its session's job stopped. The job's error follows once it has stopped."""
        job = self.queue.of_session(session)
        if job is not None:
            self._stop(job, stopped(job, "cancelled"))
        return self._effects.take()

    def wish(self, session: str, turn: int, instructions: Sequence[str]) -> list[Effect]:
        """A client says what its session's turn of this number may be, the likeliest first."""
        self._ahead.wish(session, turn, instructions, self.queue.connected_sessions().keys())
        return self._effects.take()

    def client_gone(self, client: Client) -> list[Effect]:
        """A connection is lost: its jobs move behind others, and the oldest ones beyond its share are dropped."""
        for job in self.queue.client_gone(client):
            self._stop(job, stopped(job, "busy"))
        return self._effects.take()

    def session_changed(self, session: str) -> list[Effect]:
        """A session was rewound or closed: its ready turns are invalid."""
        self._ahead.session_changed(session)
        return self._effects.take()

    def worker_sent(self, worker: int, message: Message, now: float) -> list[Effect]:
        """A worker sent a message about its job. Messages about a stopped job are ignored."""
        self._process_ready(now)
        ahead, job = self._ahead.running, self.queue.running_at(worker)
        if ahead is not None and ahead.job.id == message.parent:
            if self._ahead.receive(message, now):
                self._job_ended(worker, ahead.job)
                self._dispatch(now)
        elif job is not None and message.parent == job.id:
            self._receive(job, message, now)
        return self._effects.take()

    def worker_died(self, worker: int, reason: str, fleet: Fleet, now: float) -> list[Effect]:
        """A worker died: its jobs wait for any free worker, unless the running one was stopped or killed too many."""
        self._process_ready(now)
        self.dispatch.fleet = fleet
        running, died_ahead = self.queue.running_at(worker), self._ahead.worker_died(worker)
        to_blame = not died_ahead and worker not in self.dispatch.failing
        self.dispatch.died(worker, now)
        for job in self.queue.jobs:
            if job.worker == worker:
                self._remove_stored(job)
                job.worker = None
        if running is not None:
            self._retry(running, reason, to_blame, now)
        elif fleet.degraded:  # no worker can start, so no job is kept waiting
            for job in self.queue.jobs:
                self._fail(job, fleet.degraded_error())
        return self._effects.take()

    def tick(self, fleet: Fleet, now: float) -> list[Effect]:
        """Time passed, requests came, or the set of serving workers changed: do what is due, dispatch what waits."""
        self.dispatch.fleet = fleet
        self._process_ready(now)
        if self._checked_at is None or now - self._checked_at >= CHECK_S:
            self._checked_at = now
            for job in self.queue.overdue(now):
                self._stop(job, stopped(job, "deadline"))
            if self._storage.sweeps(now):
                self._storage.sweep(self.queue.sessions_in_use(now) | {job.session for job in self.queue.jobs}, now)
        self._dispatch(now)
        return self._effects.take()

    def end(self) -> list[Effect]:
        """The server stops now: every job ends."""
        for job in self.queue.jobs:
            self._fail(job, stopped(job, "draining"))
        self._storage.remove_all()
        return self._effects.take()

    # Admission

    def _admit(self, job: Job, now: float) -> None:
        ready = self._ahead.take(job, self.dispatch.fleet.engines, self.queue.idle)
        job.suspect = self._suspects.suspects(job, now)
        self.queue.add(job)
        if isinstance(job, Turn) and ready is not None:
            self._answer(job, ready, now)
        elif isinstance(job, Played):
            self._effects.publish(job, self._accepted(job, self.queue.place(job)))

    def _answer(self, job: Turn, ready: AheadTurn, now: float) -> None:
        """Answer a job from a speculative turn. If that is still running, the job takes it over."""
        job.id, job.started_at = ready.job.id, max(now, job.accepted_at)
        if not ready.complete:
            self.queue.start(job, now)
            job.worker = ready.job.worker
        self._effects.publish(job, self._accepted(job, 0))
        shown, rest = ready.answer()
        for message in shown:
            self._receive(job, message, now)
        self._ready_messages.extend((job, message) for message in rest)

    def _process_ready(self, now: float) -> None:
        while self._ready_messages:
            self._receive(*self._ready_messages.popleft(), now)

    def _accepted(self, job: Played, place: int) -> Message:
        return job.accepted(place, self.dispatch.median_s("total") * self.queue.turns_until_done(job))

    # Messages from workers
    def _receive(self, job: Job, message: Message, now: float) -> None:
        if job.over:  # an earlier message of a ready turn has ended it
            return
        try:
            self._process(job, message, now)
        except StoreError as error:
            self._stop(job, error)
        except Exception as error:  # noqa: BLE001  a fault in one job ends only that job
            text = f"a worker's message about job {job.id} could not be handled"
            self._effects.append(Logged(logging.ERROR, text, error))
            if not job.over:
                self._stop(job, fault())

    def _process(self, job: Job, message: Message, now: float) -> None:
        match read_reply(job, message):
            case JobFailed(code=code, text=text, do=do, answer=answer):
                at_fault = job.worker if code not in CODES or code == "internal" else None
                self._work_ended(job, now, failed=at_fault is not None)
                error = ProtocolError(text, code=code, do=do)
                error.answer = answer
                if code not in NO_FAULTS:
                    self._effects.append(Logged(logging.ERROR, f"the worker failed a job: {code}: {text}"))
                self._fail(job, error if code != "cancelled" else job.stop_error or stopped(job, "cancelled"), at_fault)
                self._dispatch(now)
            case PartFinished():
                self._work_ended(job, now)
                if job.stop_error is not None:
                    self._fail(job, job.stop_error)
                else:
                    if isinstance(job, Export) and not job.predicts:
                        job.turn += 1
                    job.take_back()
                    self.queue.put_back(job)
                self._dispatch(now)
            case TurnFinished() | ExportFinished() | GameStarted() as finished:
                self._work_ended(job, now)
                self._finish(job, finished, now)
                self._dispatch(now)
            case TurnResult() as result:
                if isinstance(job, Turn):
                    self._storage.store_turn(job, result)
                    job.stored = True
            case PredictedShots(shots=shots) if isinstance(job, Rendered):
                self._storage.add_shots(job, shots)
            case Message(type="progress") if isinstance(job, Export):
                self._effects.notify(job, replace(message, seq=None))
            case Message(type="understood") if isinstance(job, Played) and job.last_seq == 0:
                self._effects.publish(job, replace(message, id=None))  # it has no `seq`, and comes before the first
            case Message(seq=int(seq)) if isinstance(job, Played) and seq > job.last_seq:
                self._pass_on(job, message, seq, now)

    def _pass_on(self, job: Played, message: Message, seq: int, now: float) -> None:
        job.last_seq = seq
        if message.type in ("frame", "clip") and not job.has_picture:
            job.has_picture = True
            self._effects.append(Counted("first_picture", max(0.0, now - job.accepted_at)))
        self._effects.publish(job, replace(message, session=job.session, turn=job.turn, id=None))
        if message.type == "state" and isinstance(job, Turn) and job.fault:
            self._rehearse(job)

    def _rehearse(self, job: Turn) -> None:
        if job.fault in rehearsal.ENDED:
            self._stop(job, rehearsal.rehearsed(job.fault))
        elif job.worker is not None and not job.worker_deaths:
            self._effects.append(Replace(job.worker))

    def _work_ended(self, job: Job, now: float, failed: bool = False) -> None:
        if job.worker is None:  # a job served from a ready turn has none
            return
        self._job_ended(job.worker, job, failed)
        self._ahead.postpone(now)
        if failed and self.dispatch.failed(job.worker, job.session, len(self.queue.connected_sessions())):
            self._effects.append(Replace(job.worker))

    def _job_ended(self, worker: int, ended: Job, failed: bool = False) -> None:
        has_next = any(job.worker == worker and job is not ended for job in self.queue.jobs)
        self._effects.append(Ended(worker, has_next, failed))

    # The end of a job

    def _finish(self, job: Job, finished: TurnFinished | ExportFinished | GameStarted, now: float) -> None:
        """The worker has sent everything: send the job's last message."""
        if isinstance(job, Turn) and not job.stored:
            assert job.stop_error is not None, "a turn that could not be stored is being stopped"
            self._fail(job, job.stop_error)
            return
        try:
            match job, finished:
                case Start(), GameStarted():
                    if job.subscriber.client.connected:  # otherwise nobody has its token
                        self._effects.append(Started(job, finished))
                case Export(), ExportFinished(files=files):
                    turns, folder = self._storage.finished_turns(job.session), self._storage.complete_export(job)
                    fields = {"folder": str(folder), "turns": turns, "files": list(files)[:MAX_FILES]}
                    self._effects.notify(job, Message("exported", fields))
                case Played(), TurnFinished(seconds=spent):
                    if isinstance(job, Turn):
                        self._storage.confirm_turn(job)
                    turns = job.turn if isinstance(job, Turn) else self._storage.finished_turns(job.session)
                    self._send_done(job, spent, turns)
        except StoreError as error:
            self._fail(job, error)
            return
        self._suspects.acquit(job)
        if job.worker is not None:
            self.dispatch.finished(job.worker)
        self.queue.remove(job)
        job.end()
        if isinstance(job, Turn):
            self._ahead.turn_done(job.session)
        if isinstance(job, Played) and job.late_subscriber is not None:
            self._admit(job.replay_for(job.late_subscriber, now), now)

    def _send_done(self, job: Played, spent: Mapping[str, float], turns: int) -> None:
        seconds = {**{stage: spent[stage] for stage in STAGES if stage in spent}, "queue": job.queued_s}
        self.dispatch.times.add(seconds)
        done = {"seconds": seconds, "turns": turns}
        self._effects.publish(job, Message("done", done, session=job.session, turn=job.turn, seq=job.last_seq + 1))
        self._effects.append(Done(job.NOUN, job.session, job.turn, seconds, job.worker))

    def _retry(self, job: Job, reason: str, to_blame: bool, now: float) -> None:
        """A job's worker died: have another play it, unless that was one too many."""
        self.queue.put_back(job, behind=to_blame)
        if to_blame:
            job.worker_deaths += 1
            self._blame(job, reason, now)
        if job.stop_error is not None and not job.over:
            self._fail(job, job.stop_error)
        if not (job.over or isinstance(job, Start)):  # its client has no session yet for `restarting` to name
            fields = {"attempt": max(1, job.worker_deaths), "retry_in_s": self.dispatch.fleet.retry_in_s}
            self._effects.notify(job, Message("restarting", fields))

    def _blame(self, culprit: Job, reason: str, now: float) -> None:
        """A job killed a worker: end the waiting ones that are refused from now on."""
        for job, refused in self._suspects.blame(culprit, self.queue, now):
            self._effects.append(Logged(logging.WARNING, f"{job.NOUN} refused: {refused}; the last: {reason}"))
            self._stop(job, refused)

    def _stop(self, job: Job, error: AnimeGamerError) -> None:
        self._cancel(job)
        if job.worker is not None and job in self.queue.running:
            job.stop_error = job.stop_error or error  # sent once the worker has stopped
        else:
            self._fail(job, error)

    def _fail(self, job: Job, error: AnimeGamerError, at_fault: int | None = None) -> None:
        self.queue.remove(job)
        self._remove_stored(job)
        if isinstance(job, Export):
            self._storage.drop_export(job)
        self._effects.append(Lost(job.NOUN, error.code, job.session, job.about[1], at_fault))
        self._effects.send_error(job, error)
        job.end()

    def _remove_stored(self, job: Job) -> None:
        """Remove a stored turn whose frames will not come from this worker."""
        if isinstance(job, Turn) and job.stored:
            job.stored = False
            self._storage.remove_turn(job.session)

    # Dispatch
    def _dispatch(self, now: float) -> None:
        """Keep each worker supplied with the job it runs and the next one."""
        self.queue.capacity = max(1, len(self.dispatch.fleet.serving))
        if self.queue.idle:
            self._play_ahead(now)
            return
        self._ahead.postpone(now)
        self._ahead.stop()
        while (move := self.dispatch.next_move(self.queue, now)) is not None:
            match move:
                case Begun(job):
                    self.queue.start(job, now)
                case TakeBack(job):
                    self._cancel(job)
                    job.take_back()
                case HandOver(job, worker, runs):
                    if runs and job not in self.queue.running:
                        self.queue.start(job, now)
                    self._give(job, worker, now)

    def _cancel(self, job: Job) -> None:
        if job.worker is not None:
            self._effects.append(Cancel(job.worker, job.id))

    def _give(self, job: Job, worker: int, now: float) -> None:
        """Give a job to a worker; if that fails, the job ends."""
        try:
            if isinstance(job, Rendered) and (missing := self._storage.missing_shots(job)):
                job.extend_deadline(self.dispatch.predict_again_s(missing))
            self._send_job(job, self._storage.job_message(job, self.dispatch.times.slice_turns), worker, now)
        except AnimeGamerError as error:
            self._fail(job, error)
        except Exception as error:  # noqa: BLE001  a fault in one job ends only that job
            self._effects.append(Logged(logging.ERROR, f"job {job.id} could not be given to a worker", error))
            self._fail(job, fault())

    def _send_job(self, job: Job, message: Message, worker: int, now: float) -> None:
        self._effects.append(Give(worker, encode(message)))
        self.dispatch.given(worker, job.session, now)
        job.worker = worker

    def _play_ahead(self, now: float) -> None:
        if not self.dispatch.fleet.serving:
            return
        try:
            begun = self._ahead.begin(self.queue.connected_sessions(), self.dispatch.fleet.engines, now)
            if begun is not None:
                job, message = begun
                self._send_job(job, message, self.dispatch.best(self.dispatch.fleet.serving, job.session), now)
        except AnimeGamerError:  # speculative: if the real turn fails too, its client gets the error
            return
        except Exception as error:  # noqa: BLE001  an unreadable session must not end anybody's game
            self._effects.append(Logged(logging.ERROR, "a speculative turn could not be started", error))
            self._ahead.pause()
