"""Who may have a turn now: one running, a bounded queue, turns a minute, sessions in use, deadlines.

Knows jobs and limits; nothing of messages, of the store or of the worker. Times are of the monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from animegamer_rt.errors import ProtocolError

from .jobs import Job
from .options import ServeOptions

SESSION_IN_USE_S = 3600.0
MINUTE_S = 60.0


class JobQueue:
    """`running` is the job that the worker has (or will have again); `waiting` are the others, oldest first."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.running: Job | None = None
        self.waiting: deque[Job] = deque()
        self._used: dict[str, float] = {}
        self._turns: dict[str, deque[float]] = {}

    @property
    def jobs(self) -> Iterator[Job]:
        """All jobs, the running one first."""
        if self.running is not None:
            yield self.running
        yield from list(self.waiting)

    @property
    def follower(self) -> Job | None:
        """The job after the running one."""
        return self.waiting[0] if self.waiting else None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.running is None and not self.waiting

    def of_session(self, session: str) -> Job | None:
        """The session's job: there is at most one."""
        return next((job for job in self.jobs if job.session == session), None)

    def place(self, job: Job) -> int:
        """How many jobs come before it: 0 = it runs now."""
        return list(self.jobs).index(job)

    def check_room(self) -> None:
        """Raises `busy` when the queue is full."""
        if len(list(self.jobs)) > self._options.queue:  # the one that runs, or will once there is a worker, not counted
            raise ProtocolError(
                "the queue is full", code="busy", found=f"{len(self.waiting)} turns", do="try again in some seconds"
            )

    def check_rate(self, session: str, now: float) -> None:
        """Counts a turn or an export of the session. Raises `rate_limited` when its turns a minute are used up."""
        most = self._options.turns_per_minute
        if not most:
            return
        times = self._turns.setdefault(session, deque())
        while times and times[0] <= now - MINUTE_S:
            times.popleft()
        if len(times) >= most:
            wait = times[0] + MINUTE_S - now
            raise ProtocolError(
                "too many turns in a minute", code="rate_limited", expected=f"at most {most}", do=f"wait {wait:.0f} s"
            )
        times.append(now)

    def use_session(self, session: str, now: float) -> None:
        """Notes that the session is in use. Raises `too_many_sessions` when others fill the server."""
        self.check_sessions(now, session)
        self._used[session] = now

    def check_sessions(self, now: float, session: str | None = None) -> None:
        """Raises `too_many_sessions` when there is no room for one more beside `session`."""
        most = self._options.sessions
        if most and session not in self._used and self.sessions(now) >= most:
            raise ProtocolError(
                "too many sessions are in use",
                code="too_many_sessions",
                expected=f"at most {most} within an hour",
                do="close one, or try again later",
            )

    def leave(self, session: str) -> None:
        """The session is closed: it no longer counts."""
        self._used.pop(session, None)
        self._turns.pop(session, None)

    def sessions(self, now: float) -> int:
        """Number of sessions used within the last hour."""
        return len(self.in_use(now))

    def in_use(self, now: float) -> set[str]:
        """Ids of the sessions used within the last hour."""
        for session in [session for session, used in self._used.items() if used < now - SESSION_IN_USE_S]:
            self.leave(session)
        return set(self._used)

    def add(self, job: Job) -> None:
        """Queue a job."""
        self.waiting.append(job)

    def next(self) -> Job | None:
        """Make the first that waits the running one."""
        self.running = self.waiting.popleft() if self.waiting else None
        return self.running

    def remove(self, job: Job) -> None:
        """The job is over, or will never be."""
        if job is self.running:
            self.running = None
        else:
            self.waiting.remove(job)

    def overdue(self, now: float) -> list[Job]:
        """Jobs past their deadline that are not yet being stopped."""
        return [job for job in self.jobs if job.ending is None and job.deadline_at <= now]
