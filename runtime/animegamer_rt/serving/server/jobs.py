"""What the worker is asked to do: a turn, a finished turn once more, or an export; and who waits for it.

Knows one job; nothing of the queue, the store or the worker.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import Message

from .clients import Client, FrameOptions

KEPT_BYTES = 48 * 2**20
"""Most that is kept of a running turn's events for a client that comes back while it runs: two full-size clips."""


@dataclass(slots=True)
class Subscriber:
    """Who gets the events: a connection, its request's id, and the last `seq` that it has already.

    delivery: frames that this listener is too slow for are dropped under this name; one that asks again gets them.
    """

    client: Client
    parent: str | None
    after_seq: int = -1
    delivery: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(slots=True, eq=False)
class Job:
    """kind: turn, replay (of a finished turn; nothing is added to the session) or export.

    accepted_at, deadline_at, started_at: seconds of the monotonic clock; produced: the last `seq` the worker gave;
    at_worker: handed over, to run now or next. kept: written down, though its pictures are still to come.
    events: all so far, while they are few enough bytes, else None. ending: if it is being stopped, what its client is
    told once it has.
    """

    kind: str
    session: str
    listener: Subscriber
    pictures: FrameOptions
    accepted_at: float
    deadline_at: float
    turn: int | None = None
    turn_id: str = ""
    instruction: str = ""
    seed: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    started_at: float | None = None
    produced: int = 0
    at_worker: bool = False
    kept: bool = False
    failures: int = 0
    asked_s: float = math.inf
    """Seconds after which its client no longer wants it."""
    lengthened: bool = False
    """Given more time, as shots have to be predicted again before it."""
    ending: AnimeGamerError | None = None
    folder: Path | None = None
    events: list[Message] | None = field(default_factory=list)
    events_bytes: int = 0
    late: Subscriber | None = None
    """Came back when `events` were too many to keep: gets the turn rendered again once it is finished."""

    def lengthen(self, seconds: float) -> None:
        """Give it more time, once, but not more than its client asked for."""
        if not self.lengthened:
            self.deadline_at = min(self.deadline_at + seconds, max(self.deadline_at, self.accepted_at + self.asked_s))
            self.lengthened = True

    @property
    def queued_s(self) -> float:
        """Seconds that it waited before its turn came."""
        return 0.0 if self.started_at is None else self.started_at - self.accepted_at

    def emit(self, message: Message) -> None:
        """Send an event of this turn, and keep it as long as the turn runs."""
        if self.events is not None:
            self.events_bytes += sum(len(buffer) for buffer in message.buffers) + 256
            self.events.append(message)
            if self.events_bytes > KEPT_BYTES:
                self.events = None
        self._deliver(message)

    def attach(self, listener: Subscriber) -> None:
        """Another connection (or request) takes the turn over: what it lacks so far, then the rest."""
        if self.events is None:
            self.late = listener
            return
        self.listener = listener
        for message in self.events:
            self._deliver(message)

    def tell(self, message: Message) -> None:
        """Send something about this job that is not one of its events and has no `seq`."""
        to = self.late or self.listener
        to.client.send(replace(message, parent=to.parent, session=self.session, turn=self.turn))

    def _deliver(self, message: Message) -> None:
        to = self.listener
        # The end comes whatever the listener has, so that each request is answered.
        if self.late is None and (message.seq is None or message.seq > to.after_seq or message.type == "done"):
            to.client.send(replace(message, parent=to.parent), to.delivery)
