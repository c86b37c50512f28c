"""One job of the worker (a turn, a replay of a finished turn, an export), and the client that gets its events.

Knows one job; nothing of the queue, the store or the worker.
"""

from __future__ import annotations

import enum
import math
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import FrameOptions

from .clients import Client

MAX_EVENTS_BYTES = 48 * 2**20
"""Most that is held of a running turn's events for a client that comes back while it runs: two full-size clips."""
EVENT_OVERHEAD_BYTES = 256
"""Counted for each event beside its buffers."""

JobKind = Literal["turn", "replay", "export"]
"""replay: a finished turn once more; nothing is added to the session."""


class JobState(enum.Enum):
    """How far a job is. After the worker died, every job is WAITING again."""

    WAITING = enum.auto()
    """In the queue; the worker does not have it."""
    DISPATCHED = enum.auto()
    """The worker runs it, or will run it next."""
    STORED = enum.auto()
    """Of a turn: the worker has sent its result, which is in the store. Its frames are still to come."""


@dataclass(slots=True)
class Subscriber:
    """Where a job's events go: a client, the id of its request, and the last `seq` that it already has.

    delivery: frames that the client is too slow for are dropped under this name; a new request has a new name.
    """

    client: Client
    parent: str | None
    after_seq: int = -1
    delivery: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(slots=True, eq=False)
class Job:
    """One job. Times (`..._at`) are seconds of the monotonic clock; `session` is an id.

    owner: the connection that it counts for in the queue. last_seq: of the newest event that the worker sent.
    worker_deaths: how many workers died while they ran it.
    requested_s: seconds after which its client no longer wants it.
    stop_error: what the client is told once the worker has stopped the job; None while nobody has asked for a stop.
    events: all so far, or None when they became too many bytes to hold.
    late_subscriber: came back when `events` was None; gets the turn rendered again once this job is over.
    """

    kind: JobKind
    session: str
    subscriber: Subscriber
    frame_options: FrameOptions
    accepted_at: float
    deadline_at: float
    turn: int | None = None
    turn_id: str = ""
    instruction: str = ""
    seed: int = 0
    requested_s: float = math.inf
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    owner: object = None
    state: JobState = JobState.WAITING
    started_at: float | None = None
    last_seq: int = 0
    worker_deaths: int = 0
    deadline_extended: bool = False
    stop_error: AnimeGamerError | None = None
    export_folder: Path | None = None
    events: list[Message] | None = field(default_factory=list)
    events_bytes: int = 0
    late_subscriber: Subscriber | None = None

    @property
    def at_worker(self) -> bool:
        """Whether the worker has it."""
        return self.state is not JobState.WAITING

    @property
    def queued_s(self) -> float:
        """Seconds that it waited before it ran."""
        return 0.0 if self.started_at is None else self.started_at - self.accepted_at

    def extend_deadline(self, seconds: float) -> None:
        """Give it more time, once, but not more than its client asked for."""
        if not self.deadline_extended:
            latest = max(self.deadline_at, self.accepted_at + self.requested_s)
            self.deadline_at = min(self.deadline_at + seconds, latest)
            self.deadline_extended = True

    def publish(self, message: Message) -> None:
        """Send an event of the turn, and hold it for a client that comes back before the turn's end."""
        if self.events is not None:
            self.events_bytes += sum(len(buffer) for buffer in message.buffers) + EVENT_OVERHEAD_BYTES
            self.events.append(message)
            if self.events_bytes > MAX_EVENTS_BYTES:
                self.events = None
        self._deliver(message)

    def take_back(self) -> None:
        """The worker is not to run it now. It gets another id: what the worker still says of this one is not heard."""
        self.state, self.id = JobState.WAITING, secrets.token_hex(8)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Send the events to another connection (or request) from now on, after those that it lacks."""
        if self.events is None:
            self.late_subscriber = subscriber
            return
        self.subscriber = subscriber
        for message in self.events:
            self._deliver(message)

    def notify(self, message: Message) -> None:
        """Send a message about the job that is not one of its numbered events."""
        to = self.late_subscriber or self.subscriber
        to.client.send(replace(message, parent=to.parent, session=self.session, turn=self.turn))

    def _deliver(self, message: Message) -> None:
        to = self.subscriber
        # `done` is sent even to a client that has it, so that every request is answered.
        if self.late_subscriber is None and (
            message.seq is None or message.seq > to.after_seq or message.type == "done"
        ):
            to.client.send(replace(message, parent=to.parent), to.delivery)
