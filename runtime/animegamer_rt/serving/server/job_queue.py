"""The queue of jobs and its limits: its length, turns a minute, sessions in use, deadlines.

Knows jobs and limits; nothing of messages, of the store or of the worker. Times are seconds of the monotonic clock.
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
    """One running job and the waiting ones.

    running: the job that the worker runs, or will run when there is a worker again. waiting: the others, oldest first.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.running: Job | None = None
        self.waiting: deque[Job] = deque()
        self._session_used_at: dict[str, float] = {}
        self._turn_times: dict[str, deque[float]] = {}

    @property
    def jobs(self) -> Iterator[Job]:
        """All jobs, the running one first."""
        if self.running is not None:
            yield self.running
        yield from list(self.waiting)

    @property
    def next_waiting(self) -> Job | None:
        """The job after the running one."""
        return self.waiting[0] if self.waiting else None

    @property
    def idle(self) -> bool:
        """Whether there is no job."""
        return self.running is None and not self.waiting

    def of_session(self, session: str) -> Job | None:
        """The session's job; there is at most one."""
        return next((job for job in self.jobs if job.session == session), None)

    def place(self, job: Job) -> int:
        """How many jobs come before it; 0: it runs now."""
        return list(self.jobs).index(job)

    def check_free_space(self) -> None:
        """Raises ProtocolError `busy` when the queue is full."""
        if len(list(self.jobs)) > self._options.queue:  # the first one runs, or will run: it does not wait
            raise ProtocolError(
                "the queue is full", code="busy", found=f"{len(self.waiting)} turns", do="try again in some seconds"
            )

    def count_turn(self, session: str, now: float) -> None:
        """Count a turn or an export of the session. Raises ProtocolError `rate_limited` when it had too many."""
        limit = self._options.turns_per_minute
        if not limit:
            return
        times = self._turn_times.setdefault(session, deque())
        while times and times[0] <= now - MINUTE_S:
            times.popleft()
        if len(times) >= limit:
            wait = times[0] + MINUTE_S - now
            raise ProtocolError(
                "too many turns in a minute", code="rate_limited", expected=f"at most {limit}", do=f"wait {wait:.0f} s"
            )
        times.append(now)

    def use_session(self, session: str, now: float) -> None:
        """Note that the session is in use. Raises ProtocolError `too_many_sessions` when others fill the server."""
        self.check_sessions(now, session)
        self._session_used_at[session] = now

    def check_sessions(self, now: float, session: str | None = None) -> None:
        """Raises ProtocolError `too_many_sessions` when there is no room for one more session beside `session`."""
        limit = self._options.sessions
        if limit and session not in self._session_used_at and len(self.sessions_in_use(now)) >= limit:
            raise ProtocolError(
                "too many sessions are in use",
                code="too_many_sessions",
                expected=f"at most {limit} within an hour",
                do="close one, or try again later",
            )

    def forget_session(self, session: str) -> None:
        """The session is closed: it no longer counts."""
        self._session_used_at.pop(session, None)
        self._turn_times.pop(session, None)

    def sessions_in_use(self, now: float) -> set[str]:
        """Ids of the sessions used within the last hour."""
        for session in [name for name, used in self._session_used_at.items() if used < now - SESSION_IN_USE_S]:
            self.forget_session(session)
        return set(self._session_used_at)

    def add(self, job: Job) -> None:
        """Queue a job."""
        self.waiting.append(job)

    def start_next(self) -> Job | None:
        """Make the first waiting job the running one."""
        self.running = self.waiting.popleft() if self.waiting else None
        return self.running

    def remove(self, job: Job) -> None:
        """The job is over, or will never run."""
        if job is self.running:
            self.running = None
        else:
            self.waiting.remove(job)

    def overdue(self, now: float) -> list[Job]:
        """Jobs past their deadline that nobody has stopped yet."""
        return [job for job in self.jobs if job.stop_error is None and job.deadline_at <= now]
