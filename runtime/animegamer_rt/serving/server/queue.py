"""The queue of jobs and its limits: who comes next, how many may wait, turns a minute, sessions in use, deadlines.

Knows jobs and limits; nothing of messages, of the store or of workers. Times are seconds of the monotonic clock.

Connections take turns. One that has a job and had none goes to the end of the line, and so does one whose job has
ended while it has others waiting. So nobody waits for more than one job of each other connection. Within a connection
the session goes first that was served longest ago, then the job that came first. Jobs of connections that are gone are
in line as one connection.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import cast

from animegamer_rt.errors import ProtocolError

from .clients import Client
from .jobs import Job
from .options import ServeOptions

SESSION_IN_USE_S = 3600.0
MINUTE_S = 60.0
CHANGES_PER_TURN, MIN_CHANGES = 2, 30
"""A connection may open, branch and rewind so many times for each turn that a session may have in a minute, and at
least so many times."""
GONE = object()
"""The owner of what belongs to connections that are gone."""


@dataclass(slots=True)
class _Use:
    """When a session was last used, and by which connection."""

    at: float
    owner: object


class JobQueue:
    """The running jobs and the waiting ones.

    running: those that workers run, or will run as soon as one can, in the order in which they began. capacity: how
    many run at once.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.running: list[Job] = []
        self.capacity = 1
        self._waiting: list[Job] = []
        self._numbers = count(1)
        self._line: dict[object, int] = {}
        """Connections with a waiting job, and their place in the line: the lowest number is next."""
        self._session_ended: dict[str, int] = {}
        """When a session's last job ended, on the same count."""
        self._sessions: dict[str, _Use] = {}
        self._turn_times: dict[str, deque[float]] = {}
        self._change_times: dict[object, deque[float]] = {}
        self._ordered: list[Job] | None = None
        """`waiting`, until something changes."""

    @property
    def jobs(self) -> Iterator[Job]:
        """All jobs, the running ones first; the waiting ones in the order of their arrival."""
        yield from [*self.running, *self._waiting]

    @property
    def waiting(self) -> list[Job]:
        """The waiting jobs in the order in which they will run if no other comes. Not to be changed."""
        if self._ordered is None:
            self._ordered = self._in_order()
        return self._ordered

    def _in_order(self) -> list[Job]:
        by_owner: dict[object, list[Job]] = {}
        for job in sorted(self._waiting, key=lambda job: self._session_ended.get(job.session, 0)):
            by_owner.setdefault(job.owner, []).append(job)
        served = Counter(job.owner for job in self.running)
        line = sorted(by_owner, key=lambda owner: (served[owner], self._line[owner]))
        rounds = zip_longest(*(by_owner[owner] for owner in line))
        return [job for round_of_jobs in rounds for job in round_of_jobs if job is not None]

    @property
    def next_waiting(self) -> Job | None:
        """The job that runs next."""
        return next(iter(self.waiting), None)

    @property
    def idle(self) -> bool:
        """Whether there is no job."""
        return not self.running and not self._waiting

    def running_at(self, worker: int) -> Job | None:
        """The job that a worker runs."""
        return next((job for job in self.running if job.worker == worker), None)

    def of_session(self, session: str) -> Job | None:
        """The session's job; there is at most one."""
        return next((job for job in self.jobs if job.session == session), None)

    def place(self, job: Job) -> int:
        """How many jobs come before it, the running ones included; 0: it runs now."""
        if job in self.running:
            return 0
        before = self.waiting.index(job)
        return 0 if before < self._free else before + len(self.running)

    def check_free_space(self, owner: object) -> None:
        """Raises ProtocolError `busy` when the connection has its share of the queue, or one waiting and it is full.

        A connection that has nothing waiting always has a place.
        """
        waiting = self.waiting[self._free :]  # the others run, or will run: they do not wait
        own = sum(job.owner is owner for job in waiting)
        if own and (own >= self._share or len(waiting) >= self._options.queue):
            what = "the queue is full" if own < self._share else "this connection has its share of the queue"
            found = f"{len(waiting)} turns wait, {own} of them yours"
            raise ProtocolError(what, code="busy", found=found, do="try again in some seconds")

    @property
    def _free(self) -> int:
        """How many more jobs could run now."""
        return max(0, self.capacity - len(self.running))

    @property
    def _share(self) -> int:
        """Jobs of one connection that may wait: half the queue."""
        return max(1, self._options.queue // 2)

    def count_turn(self, session: str, now: float) -> None:
        """Count a turn or an export of the session. Raises ProtocolError `rate_limited` when it had too many."""
        _count(self._turn_times.setdefault(session, deque()), now, self._options.turns_per_minute, "turns")

    def count_change(self, owner: object, now: float) -> None:
        """Count an open, branch or rewind of the connection: each waits for the disk, and all others wait with it.

        Raises ProtocolError `rate_limited` when it had too many.
        """
        turns = self._options.turns_per_minute
        limit = max(MIN_CHANGES, CHANGES_PER_TURN * turns) if turns else 0
        _count(self._change_times.setdefault(owner, deque()), now, limit, "games opened or changed")

    def use_session(self, session: str, now: float, owner: object) -> None:
        """Note that a connection uses the session. Raises ProtocolError `too_many_sessions` when there is no room."""
        self.check_sessions(now, session)
        self._sessions[session] = _Use(now, owner)

    def check_sessions(self, now: float, session: str | None = None) -> None:
        """See that there is room for one more session beside `session`.

        Sessions whose connection is gone make room, those unused longest first. Raises ProtocolError
        `too_many_sessions` when connected clients use all that are allowed.
        """
        limit = self._options.sessions
        if not limit or session in self._sessions or len(self.sessions_in_use(now)) < limit:
            return
        busy = {job.session for job in self.jobs}
        left = [name for name, use in self._sessions.items() if use.owner is GONE and name not in busy]
        if not left:
            raise ProtocolError(
                "too many sessions are in use",
                code="too_many_sessions",
                expected=f"at most {limit} within an hour by connected clients",
                do="close one, or try again later",
            )
        self.forget_session(min(left, key=lambda name: self._sessions[name].at))

    def forget_session(self, session: str) -> None:
        """The session is closed, or made room for another: it no longer counts."""
        self._sessions.pop(session, None)
        self._turn_times.pop(session, None)
        self._session_ended.pop(session, None)
        self._ordered = None

    def sessions_in_use(self, now: float) -> set[str]:
        """Ids of the sessions used within the last hour."""
        for session in [name for name, use in self._sessions.items() if use.at < now - SESSION_IN_USE_S]:
            self.forget_session(session)
        return set(self._sessions)

    def connected_sessions(self) -> dict[str, Client]:
        """The sessions in use whose connection is there, with that connection; the last used first."""
        used = sorted(self._sessions.items(), key=lambda item: -item[1].at)
        return {session: cast(Client, use.owner) for session, use in used if use.owner is not GONE}

    def add(self, job: Job) -> None:
        """Queue a job."""
        self._ordered = None
        job.owner = job.subscriber.client
        self._waiting.append(job)
        self._enter_line(job.owner)

    def move(self, job: Job, owner: object) -> None:
        """The job's events go to another connection from now on, so it is that one's job."""
        self._ordered = None
        before, job.owner = job.owner, owner
        if job in self._waiting and before is not owner:
            place = self._line[before]
            self._leave_line(before)
            if before not in self._line:  # it was the only one: its place in the line goes with it
                self._line.setdefault(owner, place)
            self._enter_line(owner)

    def client_gone(self, client: object) -> list[Job]:
        """The connection is gone. Returns the oldest waiting jobs of such connections that are over their share."""
        for job in [job for job in self.jobs if job.owner is client]:
            self.move(job, GONE)
        self._change_times.pop(client, None)
        for use in self._sessions.values():
            use.owner = GONE if use.owner is client else use.owner
        gone = [job for job in self._waiting if job.owner is GONE]
        return gone[: max(0, len(gone) - self._share)]

    def start(self, job: Job, now: float) -> None:
        """Make a waiting job a running one."""
        self._ordered = None
        if job.started_at is None:  # `now` is of the round's begin; the job may have come after it
            job.started_at = max(now, job.accepted_at)
        self.running.append(job)
        self._waiting.remove(job)
        self._leave_line(job.owner)

    def remove(self, job: Job) -> None:
        """The job is over, or will never run."""
        self._ordered = None
        if job in self.running:
            self.running.remove(job)
            if job.session in self._sessions:
                self._session_ended[job.session] = next(self._numbers)
            if job.owner in self._line:  # its other jobs go to the end of the line
                self._line[job.owner] = next(self._numbers)
        else:
            self._waiting.remove(job)
            self._leave_line(job.owner)

    def postpone_deadlines(self, since: float, now: float) -> None:
        """Charge nobody for the time since then in which the queue was held up by the jobs that run."""
        if self.running and all(job.holds_up for job in self.running):
            for job in self._waiting:
                job.postpone_deadline(max(0.0, now - max(since, job.accepted_at)))

    def overdue(self, now: float) -> list[Job]:
        """Jobs past their deadline that nobody has stopped yet."""
        return [job for job in self.jobs if job.stop_error is None and job.deadline_at <= now]

    def _enter_line(self, owner: object) -> None:
        if owner not in self._line:
            self._line[owner] = next(self._numbers)

    def _leave_line(self, owner: object) -> None:
        if not any(job.owner is owner for job in self._waiting):
            self._line.pop(owner, None)


def _count(times: deque[float], now: float, limit: int, what: str) -> None:
    if not limit:
        return
    while times and times[0] <= now - MINUTE_S:
        times.popleft()
    if len(times) >= limit:
        wait_s = math.ceil(times[0] + MINUTE_S - now)
        raise ProtocolError(
            f"too many {what} in a minute", code="rate_limited", expected=f"at most {limit}", do=f"wait {wait_s} s"
        )
    times.append(now)
