"""The queue of jobs and its limits: who is next, how many may wait, turns per minute, sessions in use, deadlines.

Knows jobs, not messages, the store or workers. Times are seconds of the monotonic clock.

Round robin over holders (`shares`): one that gets a job and had none goes to the end of the line, and so does one whose
job ended while others of its jobs wait. So nobody waits for more than one job of each other holder. Within a holder the
session served longest ago goes first, then the oldest job. Jobs of lost connections share one place in the line.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import cast

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.shares import FullError, Share, Worth

from .clients import Client
from .jobs import Job
from .options import ServeOptions

SESSION_IN_USE_S = 3600.0
MINUTE_S = 60.0
CHANGES_PER_TURN, MIN_CHANGES = 2, 30
"""Opens, branches, rewinds and wishes, by cost, that a holder may make per turn allowed a minute, and in any case."""
GONE = object()
"""The owner and holder of what belonged to lost connections."""


@dataclass(slots=True)
class _Use:
    """When a session was last used, and by which connection. played: whether it had a job since it was opened."""

    at: float
    owner: object
    played: bool = False


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
        """Owners of waiting jobs, and their place in the line; the lowest number is next."""
        self._session_ended: dict[str, int] = {}
        """When a session's last job ended, on the same count."""
        self._sessions: dict[str, _Use] = {}
        self._session_share = Share[str](options.sessions)
        self._turns: dict[object, tuple[float, float]] = {}
        self._changes: dict[object, tuple[float, float]] = {}
        """What each has been charged and not worked off yet, and when that was; longest ago first."""
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
    def suspected_workers(self) -> set[int | None]:
        """The workers that run a job under suspicion: it is to blame if they die."""
        return {job.worker for job in self.running if job.suspect}

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
        """Raises ProtocolError `busy` if a holder's share is full, or it has a waiting job and the queue is full.

        A connection without a waiting job always gets a place.
        """
        waiting = self.waiting[self._free :]  # the others are running or about to
        own = sum(job.owner == owner for job in waiting)
        if own and (own >= self._share or len(waiting) >= self._options.queue):
            what = "the queue is full" if own < self._share else "your share of the queue is full"
            found = f"{len(waiting)} turns are waiting, {own} of them yours"
            raise ProtocolError(what, code="busy", found=found, do="try again in a few seconds")

    @property
    def _free(self) -> int:
        """How many more jobs could run now."""
        return max(0, self.capacity - len(self.running))

    @property
    def _share(self) -> int:
        """Jobs of one owner that may wait: half the queue."""
        return max(1, self._options.queue // 2)

    def turns_until_done(self, job: Job) -> float:
        """The workers' time until the job is done, in turns, by the present queue.

        Long jobs take turns with others: one that is behind, or longer, counts no more than this one's own time.
        """
        ahead, own = [*self.running, *self.waiting], job.cost_turns
        place = ahead.index(job)
        others = [min(one.cost_turns, max(1.0, own)) for one in ahead[:place]]
        others += [min(one.cost_turns, max(0.0, own - 1.0)) for one in ahead[place + 1 :]]
        free_at = [0.0] * self.capacity
        for turns in others:
            heapq.heapreplace(free_at, free_at[0] + turns)
        return free_at[0] + own

    def count_turn(self, session: str, now: float, cost_turns: float = 1.0) -> None:
        """Count a job of the session by its cost. Raises ProtocolError `rate_limited` beyond the limit."""
        _charge(self._turns, session, cost_turns, now, self._options.turns_per_minute, "turns")

    def count_change(self, owner: object, now: float, cost: float = 1.0) -> None:
        """Count an open, branch, rewind or wish of the owner: each blocks everybody.

        cost: in opens, which wait for the disk; copying CHECKPOINT_TURNS takes about as long.
        Raises ProtocolError `rate_limited` beyond the limit.
        """
        turns = self._options.turns_per_minute
        limit = max(MIN_CHANGES, CHANGES_PER_TURN * turns) if turns else 0
        _charge(self._changes, owner, cost, now, limit, "games opened or changed")

    def use_session(self, session: str, now: float, client: Client, *, played: bool = False) -> None:
        """Record that a connection uses the session. Raises ProtocolError `too_many_sessions` if there is no room.

        played: it gets a job.
        """
        self.check_sessions(now, client, session)
        before = self._sessions.pop(session, None)  # kept in order of use
        use = self._sessions[session] = _Use(now, client, played or (before is not None and before.played))
        self._session_share.set(session, client.holder, worth=Worth.USED if use.played else Worth.UNUSED)

    def check_sessions(self, now: float, client: Client, session: str | None = None) -> None:
        """Make room for one more session of the connection besides `session`.

        Sessions of lost connections make room first, then those never played, then those of whoever has the most.
        Raises ProtocolError `too_many_sessions` if that is this connection itself.
        """
        self._expire(now)
        if session in self._sessions:
            return
        try:
            given_up = self._session_share.giver(client.holder, spared={job.session for job in self.jobs})
        except FullError as error:
            raise ProtocolError(
                "too many sessions are in use",
                code="too_many_sessions",
                expected=f"at most {self._options.sessions} within an hour, shared by all players",
                do="close one, or try again later",
            ) from error
        if given_up is not None:
            self.forget_session(given_up)

    def forget_session(self, session: str) -> None:
        """The session was closed, or made room for another: it no longer counts."""
        self._sessions.pop(session, None)
        self._session_share.drop(session)
        self._session_ended.pop(session, None)
        self._ordered = None

    def sessions_in_use(self, now: float) -> set[str]:
        """Ids of the sessions used within the last hour."""
        self._expire(now)
        return set(self._sessions)

    def _expire(self, now: float) -> None:
        while self._sessions and (oldest := next(iter(self._sessions.items())))[1].at < now - SESSION_IN_USE_S:
            self.forget_session(oldest[0])

    def connected_sessions(self) -> dict[str, Client]:
        """Sessions in use with an open connection, and that connection; most recently used first."""
        used = sorted(self._sessions.items(), key=lambda item: -item[1].at)
        return {session: cast(Client, use.owner) for session, use in used if use.owner is not GONE}

    def add(self, job: Job) -> None:
        """Queue a job."""
        self._ordered = None
        job.owner = job.subscriber.client.holder
        self._waiting.append(job)
        self._enter_line(job.owner)

    def move(self, job: Job, owner: object) -> None:
        """The job's events now go to another connection, so the job counts as its holder's."""
        self._ordered = None
        before, job.owner = job.owner, owner
        if job in self._waiting and before != owner:
            place = self._line[before]
            self._leave_line(before)
            if before not in self._line:  # it was the only one: its place in the line moves with it
                self._line.setdefault(owner, place)
            self._enter_line(owner)

    def client_gone(self, client: Client) -> list[Job]:
        """The connection is lost. Returns the oldest waiting jobs of lost connections beyond their share."""
        for job in [job for job in self.jobs if job.listener.client is client]:
            self.move(job, GONE)
        if client.holder is client:  # a key or an address may come back
            self._changes.pop(client, None)
        for session, use in self._sessions.items():
            if use.owner is client:
                use.owner = GONE
                self._session_share.set(session, GONE, worth=Worth.ABANDONED)
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

    def put_back(self, job: Job, *, behind: bool = True) -> None:
        """A running job waits again: until others had their turn, or else as the next one."""
        self.remove(job)
        self._waiting.append(job)
        self._enter_line(job.owner)
        if not behind:
            self._line[job.owner] = 0
            self._session_ended.pop(job.session, None)

    def overdue(self, now: float) -> list[Job]:
        """Jobs past their deadline that are not being stopped yet."""
        return [job for job in self.jobs if job.stop_error is None and job.deadline_at <= now]

    def _enter_line(self, owner: object) -> None:
        if owner not in self._line:
            self._line[owner] = next(self._numbers)

    def _leave_line(self, owner: object) -> None:
        if not any(job.owner == owner for job in self._waiting):
            self._line.pop(owner, None)


def _charge(
    charged: dict[object, tuple[float, float]], who: object, cost: float, now: float, limit: int, what: str
) -> None:
    """Charge somebody who may spend `limit` a minute, and work off a larger cost before the next."""
    if not limit:
        return
    for key, (amount, at) in list(charged.items()):
        if amount - (now - at) * limit / MINUTE_S > 0:
            break
        del charged[key]
    amount, at = charged.pop(who, (0.0, now))
    amount = max(0.0, amount - (now - at) * limit / MINUTE_S)
    room = limit - amount >= 1 - 1e-9
    charged[who] = (amount + cost if room else amount), now
    if not room:
        wait_s = math.ceil((amount + 1 - limit) * MINUTE_S / limit - 1e-6)
        raise ProtocolError(
            f"too many {what} per minute", code="rate_limited", expected=f"at most {limit}", do=f"wait {wait_s} s"
        )
