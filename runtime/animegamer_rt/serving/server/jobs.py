"""One job of a worker (a turn, a replay, an export, a start from a picture), and the client that gets its events.

Knows one job; nothing of the queue, the store or what workers do.
"""

from __future__ import annotations

import enum
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import Buffer, Message
from animegamer_rt.serving.wire.worker_messages import FrameOptions, GameStarted, StartJob

from .clients import Client
from .worker_process import WorkerProcess

MAX_EVENTS_BYTES = 48 * 2**20
"""Most that is held of a running turn's events for a client that comes back while it runs: two full-size clips."""
EVENT_OVERHEAD_BYTES = 256
"""Counted for each event beside its buffers."""

JobKind = Literal["turn", "replay", "export", "start"]
"""replay: a finished turn once more; nothing is added to the session. start: turn 0 of a picture; no session yet."""


class JobState(enum.Enum):
    """How far a job is. TRANSITIONS has every step that it may take."""

    WAITING = enum.auto()
    """In the queue; no worker has it."""
    DISPATCHED = enum.auto()
    """A worker runs it, or will run it next."""
    STORED = enum.auto()
    """Of a turn: the worker has sent its result, which is in the store. Its frames are still to come."""
    DONE = enum.auto()
    """Its last message has been sent; a turn is part of its session."""
    FAILED = enum.auto()
    """Its error has been sent; a turn is no part of its session."""


TRANSITIONS: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        # given to the worker; refused, cancelled or overdue
        JobState.WAITING: frozenset({JobState.DISPATCHED, JobState.FAILED}),
        # taken back, or the worker died; the result is stored; a replay or an export is over; stopped
        JobState.DISPATCHED: frozenset({JobState.WAITING, JobState.STORED, JobState.DONE, JobState.FAILED}),
        # the worker died and the turn is removed again; its frames were sent; they fail to come
        JobState.STORED: frozenset({JobState.WAITING, JobState.DONE, JobState.FAILED}),
        JobState.DONE: frozenset(),
        JobState.FAILED: frozenset(),
    }
)


@dataclass(slots=True)
class Subscriber:
    """Where a job's events go: a client, the id of its request, and the last `seq` that it already has.

    delivery: frames that the client is too slow for are dropped under this name; a new request has a new name.
    """

    client: Client
    parent: str | None
    after_seq: int = -1
    delivery: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class PictureOpening:
    """An `open` with a picture: the file's bytes, the worker's job, and what opens the session of its turn 0.

    open_session raises AnimeGamerError where that fails.
    """

    picture: Buffer
    job: StartJob
    open_session: Callable[[GameStarted], None]


@dataclass(slots=True, eq=False)
class Job:
    """One job. Times (`..._at`) are seconds of the monotonic clock; `session` is an id (of `start`: a name of its own).

    owner: the connection that it counts for in the queue. worker: the one that has it.
    last_seq: of the newest event that the worker sent.
    worker_deaths: how many workers died while they ran it. pictured: whether its first picture has been sent.
    requested_s: seconds after which its client no longer wants it.
    predicts_again: whether shots of earlier turns have to be predicted before it begins.
    stop_error: what the client is told once the worker has stopped the job; None while nobody has asked for a stop.
    events: all so far, or None when they became too many bytes to hold.
    late_subscriber: came when `events` was None, or wants its frames in another form; gets the turn rendered again once
        this job is over.
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
    worker: WorkerProcess | None = None
    state: JobState = JobState.WAITING
    started_at: float | None = None
    pictured: bool = False
    last_seq: int = 0
    worker_deaths: int = 0
    deadline_extended: bool = False
    predicts_again: bool = False
    stop_error: AnimeGamerError | None = None
    export_folder: Path | None = None
    events: list[Message] | None = field(default_factory=list)
    events_bytes: int = 0
    late_subscriber: Subscriber | None = None
    opening: PictureOpening | None = None

    @property
    def known_session(self) -> str | None:
        """The session as its client knows it; None of a session that is being opened."""
        return None if self.kind == "start" else self.session

    @property
    def at_worker(self) -> bool:
        """Whether a worker has it."""
        return self.state in (JobState.DISPATCHED, JobState.STORED)

    @property
    def over(self) -> bool:
        """Whether it has ended: nothing more is sent of it."""
        return not TRANSITIONS[self.state]

    @property
    def holds_up(self) -> bool:
        """Whether it takes much longer than a turn now, so that others must not be charged for their waiting."""
        return self.kind in ("export", "start") or self.predicts_again

    def enter(self, state: JobState) -> None:
        """Go on to the next state."""
        assert state in TRANSITIONS[self.state], f"a job that is {self.state.name} cannot become {state.name}"
        self.state = state
        if self.over:  # a reference cycle, job to error to traceback to job, would keep the frames for a long time
            self.events = self.stop_error = None

    @property
    def queued_s(self) -> float:
        """Seconds that it waited before it ran."""
        return 0.0 if self.started_at is None else self.started_at - self.accepted_at

    def replay_for(self, subscriber: Subscriber, now: float) -> Job:
        """A replay of its turn for a client that came back too late for its events; it gets as long as the turn had."""
        return Job(
            "replay",
            self.session,
            subscriber,
            subscriber.client.frame_options or self.frame_options,
            accepted_at=now,
            deadline_at=now + self.deadline_at - self.accepted_at,
            turn=self.turn,
            turn_id=self.turn_id,
            instruction=self.instruction,
            seed=self.seed,
            requested_s=self.requested_s,
        )

    def extend_deadline(self, seconds: float) -> None:
        """Give it more time, once, but not more than its client asked for."""
        if not self.deadline_extended:
            latest = max(self.deadline_at, self.accepted_at + self.requested_s)
            self.deadline_at = min(self.deadline_at + seconds, latest)
            self.deadline_extended = True

    def postpone_deadline(self, seconds: float) -> None:
        """It waited so long for a job that holds up the queue; that does not count, but to a deadline of its client."""
        latest = max(self.deadline_at, self.accepted_at + self.requested_s)
        self.deadline_at = min(self.deadline_at + seconds, latest)

    def publish(self, message: Message) -> None:
        """Send an event of the turn, and hold it for a client that comes back before the turn's end."""
        assert not self.over or message.type == "done"
        if self.events is not None:
            self.events_bytes += sum(len(buffer) for buffer in message.buffers) + EVENT_OVERHEAD_BYTES
            self.events.append(message)
            if self.events_bytes > MAX_EVENTS_BYTES:
                self.events = None
        self._deliver(message)

    def give_to(self, worker: WorkerProcess) -> None:
        """The worker has it from now on."""
        self.enter(JobState.DISPATCHED)
        self.worker = worker

    def lose_worker(self) -> None:
        """Its worker has died: it waits for another."""
        self.enter(JobState.WAITING)
        self.worker = None

    def take_back(self) -> None:
        """Its worker is not to run it now. It gets another id: what the worker still says of this one is not heard."""
        self.lose_worker()
        self.id = secrets.token_hex(8)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Send the events to another connection (or request) from now on, after those that it lacks."""
        if self.events is None or subscriber.client.frame_options != self.frame_options:
            self.late_subscriber = subscriber
            return
        self.subscriber, self.late_subscriber = subscriber, None
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
