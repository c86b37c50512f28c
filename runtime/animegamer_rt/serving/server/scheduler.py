"""Jobs on their way: admitted, given to the worker, its events passed on, the turn kept, `done` sent.

Knows the order of a job's life; requests are `desk`'s, the process is `supervisor`'s, limits are `admission`'s. A turn
is kept in one transaction while its frames are decoded; if they fail to come, it is taken back before the error is
sent. The worker is also handed the job after the running one, so that it goes on at once. When a worker dies, the next
one gets both again, and what was sent is not sent twice.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from animegamer_rt.errors import AnimeGamerError, ProtocolError, StoreError
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import MOST_FILES, Message
from animegamer_rt.state.game import CharacterState, GameState

from .job_queue import JobQueue
from .jobs import Job, Subscriber
from .metrics import Metrics
from .options import ServeOptions
from .worker_process import FAILURES, WorkerProcess

EXPORTS = "exports"
KEPT_EXPORTS = 3
"""Exported games of a session that stay. When one more is whole the oldest goes: a visitor must not fill the disk."""
PREDICT_AGAIN_S = 1.0
"""Allowed for each shot that is predicted again, or twice what predicting takes, whichever is more."""

log = logging.getLogger(__name__)


class Scheduler:
    """All jobs of the server."""

    def __init__(
        self, options: ServeOptions, store: Store, admission: JobQueue, supervisor: WorkerProcess, metrics: Metrics
    ) -> None:
        self._options, self._store, self._admission = options, store, admission
        self._supervisor, self._metrics = supervisor, metrics

    def admit(self, job: Job, now: float) -> None:
        """Queue a job and tell its client its place. The caller has asked admission."""
        self._admission.add(job)
        if job.kind != "export":
            job.emit(self._accepted(job))
        self.start_next(now)

    def start_next(self, now: float) -> None:
        """See that the worker has the running job and the one after it."""
        while self._supervisor.serving:
            job = self._admission.running or self._admission.next()
            if job is None:
                return
            job.started_at = job.started_at or now
            if self._hand_over(job, now) and self._hand_over(self._admission.follower, now):
                return

    def _hand_over(self, job: Job | None, now: float) -> bool:
        """Whether the worker has the job, or there is none to give; a job that cannot be given to it is over."""
        if job is None or job.at_worker:
            return True
        try:
            message = self._message(job)
        except AnimeGamerError as error:
            self._fail(job, error)
            return False
        job.at_worker = True
        self._supervisor.give(message, now)
        return True

    def heard(self, message: Message, now: float) -> None:
        """The worker says something about the running job; what it says about a stopped one no longer counts."""
        job = self._admission.running
        if job is None or not job.at_worker or message.parent != job.id:
            return
        if message.type in ("finished", "failed"):
            follower = self._admission.follower
            self._supervisor.rest(more=follower is not None and follower.at_worker)
            if message.type == "finished":
                self._finish(job, message, now)
            else:
                self._fail(job, _worker_error(job, message))
            self.start_next(now)
        elif message.type == "settled":
            self._settle(job, message)
        elif message.type == "shots":
            self._keep_shots(job, message)
        elif job.kind == "export" and message.type == "progress":
            job.tell(replace(message, seq=None))
        elif message.seq is not None and message.seq > job.produced:
            job.produced = message.seq
            job.emit(replace(message, session=job.session, turn=job.turn, id=None))

    def worker_died(self, reason: str, now: float) -> None:
        """The job that it ran goes to the next worker, unless it has cost too many or is being stopped."""
        self._metrics.worker_restarted()
        job = self._admission.running
        ran = job is not None and job.at_worker
        for held in self._admission.jobs:
            held.at_worker = False
        if job is not None and ran:
            job.failures += 1
            if job.ending is not None:
                self._fail(job, job.ending)
            elif job.failures >= FAILURES:
                what = f"the worker died {job.failures} times on this turn"
                do = "send another instruction; the operator finds the reason in worker.log"
                self._fail(job, ProtocolError(what, code="worker_failed", found=reason, do=do))
            else:
                fields = {"attempt": job.failures, "retry_in_s": self._supervisor.retry_in_s(now)}
                job.tell(Message("restarting", fields))
        elif self._supervisor.degraded:
            # It could not even start: nobody is kept waiting for it.
            for waiting in list(self._admission.jobs):
                self._fail(waiting, degraded(self._supervisor))

    def watch_deadlines(self, now: float) -> None:
        """Stop the jobs that are past their deadline."""
        for job in self._admission.overdue(now):
            self._stop(job, _ended(job, "deadline"))

    def cancel(self, session: str) -> bool:
        """Stop the session's job; whether there was one. Its error follows once it has stopped."""
        job = self._admission.of_session(session)
        if job is None:
            return False
        self._stop(job, _ended(job, "cancelled"))
        return True

    def end_all(self) -> None:
        """The server will not wait any longer."""
        for job in list(self._admission.jobs):
            self._fail(job, _ended(job, "draining"))

    def _stop(self, job: Job, error: AnimeGamerError) -> None:
        if job.at_worker:
            self._supervisor.send(Message("cancel", session=job.session, turn=job.turn, id=job.id))
        if job.at_worker and job is self._admission.running:
            job.ending = job.ending or error  # it follows once the worker has stopped
        else:
            self._fail(job, error)

    def _accepted(self, job: Job) -> Message:
        place = self._admission.place(job)
        seconds = self._metrics.medians().get("total", float(self._supervisor.facts.get("warmup_s", 0.0)))
        fields = {
            "turn_id": job.turn_id,
            "place": place,
            "estimate_s": seconds * (place + 1),
            "instruction": job.instruction,
            "replayed": job.kind == "replay",
        }
        return Message("accepted", fields, session=job.session, turn=job.turn, seq=0)

    def _message(self, job: Job) -> Message:
        """The job as the worker needs it. Raises StoreError."""
        session = self._store.get(job.session)
        fields: dict[str, Any] = {"kind": "turn", "history_turns": session.history_turns}
        if job.kind == "export":
            job.folder = job.folder or _next_folder(self._options.state_dir / EXPORTS, job.session)
            turns = self._store.turns(job.session, 1, session.turns)
            fields |= {"kind": "export", "folder": str(job.folder), "seed": session.seed}
            fields |= {"log": [[turn.instruction, *astuple(turn.game_state)] for turn in turns]}
            fields |= {"seeds": [turn.seed for turn in turns]}
            return Message("job", fields, id=job.id, session=job.session)
        assert job.turn is not None
        if job.kind == "turn" and job.turn != session.turns + 1 and not job.kept:
            raise ProtocolError("the session went on without this turn", code="no_such_turn", found=f"turn {job.turn}")
        history = self._store.job_history(job.session, job.turn)
        shots = sorted(history.shots)
        if session.history_turns and len(shots) < len(history.log):
            job.lengthen(len(history.log) * self._predict_again_s())
        fields |= {"instruction": job.instruction, "seed": job.seed, "first": history.first}
        fields |= {"log": [list(row) for row in history.log], "shots": shots, "character": asdict(history.character)}
        fields |= asdict(job.pictures)
        buffers = tuple(history.shots[number] for number in shots)
        return Message("job", fields, id=job.id, session=job.session, turn=job.turn, buffers=buffers)

    def _predict_again_s(self) -> float:
        """The longest that a turn's shot may take to be predicted again."""
        whole_turn = float(self._supervisor.facts.get("warmup_s", 0.0))
        return max(PREDICT_AGAIN_S, 2 * self._metrics.medians().get("predictor", whole_turn))

    def _keep_shots(self, job: Job, message: Message) -> None:
        """Shots that were predicted again are kept at once: whatever comes of the turn, nobody waits for them twice."""
        try:
            self._store.add_shots(job.session, _shots(message))
        except StoreError as error:
            log.error("shots could not be kept: %s", error)

    def _settle(self, job: Job, message: Message) -> None:
        """Everything that is kept of the turn is known: write it down, in one transaction."""
        fields = message.fields
        if job.kind != "turn":
            return
        assert job.turn is not None
        try:
            self._store.finish_turn(
                job.session,
                job.turn,
                job.turn_id,
                job.instruction,
                GameState(**{name: fields[name] for name in GameState.__slots__}),
                CharacterState(**fields["character"]),
                _shots(message),
            )
            job.kept = True
        except StoreError as error:
            log.error("a turn could not be kept: %s", error)
            self._stop(job, error)

    def _finish(self, job: Job, message: Message, now: float) -> None:
        """The worker has played the job to its end: say so."""
        if job.kind == "turn" and not job.kept:
            assert job.ending is not None, "a turn that was not kept is being stopped"
            self._fail(job, job.ending)
            return
        fields = message.fields
        try:
            turns = self._store.get(job.session).turns
        except StoreError as error:
            self._fail(job, error)
            return
        if job.kind == "export":
            files = list(fields["files"])[:MOST_FILES]
            job.tell(Message("exported", {"folder": str(job.folder), "turns": turns, "files": files}))
            for folder in _exported(self._options.state_dir / EXPORTS, job.session)[:-KEPT_EXPORTS]:
                shutil.rmtree(folder, ignore_errors=True)
        else:
            seconds = {**fields["seconds"], "queue": job.queued_s}
            self._metrics.turn_done(seconds)
            done = {"seconds": seconds, "turns": turns}
            job.emit(Message("done", done, session=job.session, turn=job.turn, seq=job.produced + 1))
        self._admission.remove(job)
        if job.late is not None and job.kind != "export":
            self._play_again(job, job.late, now)

    def _play_again(self, job: Job, listener: Subscriber, now: float) -> None:
        """A finished turn's events for a listener who came back too late for them; it gets as long as the turn had."""
        again = Job("replay", job.session, listener, job.pictures, now, now + job.deadline_at - job.accepted_at)
        again.turn, again.turn_id, again.instruction, again.seed = job.turn, job.turn_id, job.instruction, job.seed
        again.asked_s = job.asked_s
        self.admit(again, now)

    def drop_exports(self, sessions: Sequence[str]) -> None:
        """Remove the exported games of sessions that are gone."""
        for session in sessions:
            for folder in (self._options.state_dir / EXPORTS).glob(f"{session}-*"):
                shutil.rmtree(folder, ignore_errors=True)

    def _fail(self, job: Job, error: AnimeGamerError) -> None:
        self._admission.remove(job)
        if job.folder is not None:  # half a game is of no use
            shutil.rmtree(job.folder, ignore_errors=True)
        if job.kept:
            self._take_back(job)
        to = job.late or job.listener
        to.client.refuse(error, to.parent, job.session, job.turn)

    def _take_back(self, job: Job) -> None:
        """A turn that was kept will not be done: the session is again as it was before it."""
        assert job.turn is not None
        try:
            self._store.rewind(job.session, job.turn - 1)
        except StoreError as error:
            log.error("a turn that was not done could not be taken back: %s", error)


def degraded(supervisor: WorkerProcess) -> ProtocolError:
    """What a turn is told while no worker can be started."""
    return ProtocolError(
        "the worker cannot be started",
        code="degraded",
        found=supervisor.last_error,
        do="try again later; the server goes on trying, and the operator finds the reason in worker.log",
    )


def _ended(job: Job, code: str) -> ProtocolError:
    noun, longer = ("export", "") if job.kind == "export" else ("turn", ", with a longer deadline_s if you gave one")
    what, do = {
        "cancelled": (f"the {noun} was cancelled", None),
        "deadline": (f"the {noun} did not finish in time", f"send it again{longer}"),
        "draining": ("the server is stopping", "connect again later; the session is kept"),
    }[code]
    return ProtocolError(what, code=code, do=do)


def _worker_error(job: Job, message: Message) -> AnimeGamerError:
    code, text = str(message.fields.get("code", "internal")), str(message.fields.get("text", "the turn failed"))
    if code == "cancelled":
        return job.ending or _ended(job, "cancelled")
    log.error("the worker failed a job: %s: %s", code, text)
    return ProtocolError(text, code=code, do=message.fields.get("do"))


def _shots(message: Message) -> dict[int, bytes]:
    return {number: bytes(shot) for number, shot in zip(message.fields["shots"], message.buffers, strict=True)}


def _next_folder(parent: Path, session: str) -> Path:
    earlier = _exported(parent, session)
    return parent / f"{session}-{_number(earlier[-1]) + 1 if earlier else 1}"


def _exported(parent: Path, session: str) -> list[Path]:
    """A session's exported games, the oldest first."""
    return sorted((folder for folder in parent.glob(f"{session}-*") if _number(folder)), key=_number)


def _number(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
