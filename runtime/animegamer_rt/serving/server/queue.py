"""The queue of jobs and its limits: who is next, how many may wait, turns per minute, sessions in use, deadlines.

Knows jobs, not messages, the store or workers. Times are seconds of the monotonic clock.

Round robin over connections: one that gets a job and had none goes to the end of the line, and so does one whose job
ended while others of its jobs wait. So nobody waits for more than one job of each other connection. Within a connection
the session served longest ago goes first, then the oldest job. Jobs of lost connections share one place in the line.
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
"""Opens, branches and rewinds that a connection may make per turn allowed a minute, and in any case."""
GONE = object()
"""The owner of what belonged to lost connections."""


@dataclass(slots=True)
class _Use:
    """When a session was last used, and by which connection."""

    at: float
    owner: object


class JobQueue:
    """The running and the waiting jobs.

    running: those that workers run or will run as soon as one can, in starting order. capacity: how many run at once.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.running: list[Job] = []
        self.capacity = 1
        self._waiting: list[Job] = []
        self._numbers = count(1)
        self._line: dict[object, int] = {}
        """Connections with a waiting job, and their place in the line; the lowest number is next."""
        self._session_ended: dict[str, int] = {}
        """When a session's last job ended, on the same count."""
        self._sessions: dict[str, _Use] = {}
        self._turn_times: dict[str, deque[float]] = {}
        self._change_times: dict[object, deque[float]] = {}
        self._ordered: list[Job] | None = None
        """`waiting`, cached until something changes."""

    @property
    def jobs(self) -> Iterator[Job]:
        """All jobs, running ones first; waiting ones in order of arrival."""
        yield from [*self.running, *self._waiting]

    @property
    def waiting(self) -> list[Job]:
        """The waiting jobs in the order in which they would run. Do not modify."""
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
        """The session's job; it has at most one."""
        return next((job for job in self.jobs if job.session == session), None)

    def place(self, job: Job) -> int:
        """How many jobs are ahead of it, including running ones; 0: it runs now."""
        if job in self.running:
            return 0
        before = self.waiting.index(job)
        return 0 if before < self._free else before + len(self.running)

    def check_free_space(self, owner: object) -> None:
        """Raises ProtocolError `busy` if the connection's share is full, or it has a waiting job and the queue is full.

        A connection without a waiting job always gets a place.
        """
        waiting = self.waiting[self._free :]  # the others are running or about to
        own = sum(job.owner is owner for job in waiting)
        if own and (own >= self._share or len(waiting) >= self._options.queue):
            what = "the queue is full" if own < self._share else "this connection's share of the queue is full"
            found = f"{len(waiting)} turns are waiting, {own} of them yours"
            raise ProtocolError(what, code="busy", found=found, do="try again in a few seconds")

    @property
    def _free(self) -> int:
        """How many more jobs could run now."""
        return max(0, self.capacity - len(self.running))

    @property
    def _share(self) -> int:
        """Jobs of one connection that may wait: half the queue."""
        return max(1, self._options.queue // 2)

    def count_turn(self, session: str, now: float) -> None:
        """Count a turn or export of the session. Raises ProtocolError `rate_limited` beyond the limit."""
        _count(self._turn_times.setdefault(session, deque()), now, self._options.turns_per_minute, "turns")

    def count_change(self, owner: object, now: float) -> None:
        """Count an open, branch or rewind of the connection: each waits for the disk, and blocks everybody.

        Raises ProtocolError `rate_limited` beyond the limit.
        """
        turns = self._options.turns_per_minute
        limit = max(MIN_CHANGES, CHANGES_PER_TURN * turns) if turns else 0
        _count(self._change_times.setdefault(owner, deque()), now, limit, "games opened or changed")

    def use_session(self, session: str, now: float, owner: object) -> None:
        """Record that a connection uses the session. Raises ProtocolError `too_many_sessions` if there is no room."""
        self.check_sessions(now, session)
        self._sessions[session] = _Use(now, owner)

    def check_sessions(self, now: float, session: str | None = None) -> None:
        """Make room for one more session besides `session`.

        Sessions of lost connections make room, longest unused first. Raises ProtocolError `too_many_sessions` if
        connected clients use all that are allowed.
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
        """The session was closed, or made room for another: it no longer counts."""
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
        """Sessions in use with an open connection, and that connection; most recently used first."""
        used = sorted(self._sessions.items(), key=lambda item: -item[1].at)
        return {session: cast(Client, use.owner) for session, use in used if use.owner is not GONE}

    def add(self, job: Job) -> None:
        """Queue a job."""
        self._ordered = None
        job.owner = job.subscriber.client
        self._waiting.append(job)
        self._enter_line(job.owner)

    def move(self, job: Job, owner: object) -> None:
        """The job's events now go to another connection, so the job counts as that one's."""
        self._ordered = None
        before, job.owner = job.owner, owner
        if job in self._waiting and before is not owner:
            place = self._line[before]
            self._leave_line(before)
            if before not in self._line:  # it was the only one: its place in the line moves with it
                self._line.setdefault(owner, place)
            self._enter_line(owner)

    def client_gone(self, client: object) -> list[Job]:
        """The connection is lost. Returns the oldest waiting jobs of lost connections beyond their share."""
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
        if job.started_at is None:  # `now` is the start of the round; the job may have come later
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
        """Charge nobody for the time since `since` if running jobs held up the queue."""
        if self.running and all(job.holds_up for job in self.running):
            for job in self._waiting:
                job.postpone_deadline(max(0.0, now - max(since, job.accepted_at)))

    def overdue(self, now: float) -> list[Job]:
        """Jobs past their deadline that are not being stopped yet."""
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
            f"too many {what} per minute", code="rate_limited", expected=f"at most {limit}", do=f"wait {wait_s} s"
        )
    times.append(now)
