"""Whose jobs killed workers: they are refused for a while, so that their sender waits and not everybody else.

Deaths are counted for the session and its holder (`shares`): neither sending a turn again nor another game helps. Times
are seconds of the server's clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from animegamer_rt.errors import ProtocolError

from .dispatch import MAX_FAILURES
from .jobs import Job
from .queue import GONE

REFUSED_S, MAX_REFUSED_S = 60.0, 3600.0
"""How long a turn is refused that has killed MAX_FAILURES workers. It doubles with each further death."""
REMEMBERED_S = 600.0
"""How long deaths are remembered after the last one, or after the end of a refusal."""


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
    """The sessions and holders whose jobs recently killed workers."""

    def __init__(self) -> None:
        self._records: dict[object, _Record] = {}

    def blame(self, job: Job, now: float) -> None:
        """A worker died running the job."""
        self._records = {name: one for name, one in self._records.items() if now < one.forget_at}
        session, instruction = job.subject
        for name in (session, job.owner):
            if name is not GONE:
                self._records.setdefault(name, _Record()).add(instruction, now)

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
