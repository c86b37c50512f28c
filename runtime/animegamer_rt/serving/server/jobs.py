"""What a worker is asked to do: play a turn or replay it, export a game, or start one from a picture.

Knows one job: who listens to it, when it has to be done, what it has sent so far. Times are of the monotonic clock.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from animegamer_rt.errors import AnimeGamerError, ProtocolError
from animegamer_rt.serving.wire import Buffer, Message
from animegamer_rt.serving.wire.worker_messages import (
    ExportFinished,
    FrameOptions,
    GameStarted,
    JobFailed,
    PredictedShots,
    StartJob,
    TurnFinished,
    TurnResult,
)

from .clients import Client

MAX_EVENTS_BYTES = 48 * 2**20
"""Most that is held of a running turn's events for a client that comes back while it runs: two full-size clips."""
EVENT_OVERHEAD_BYTES = 256
"""Counted for each event on top of its buffers."""


def new_id() -> str:
    """A name that nobody else has or guesses."""
    return secrets.token_hex(8)


@dataclass(slots=True)
class Subscriber:
    """Where a job's events go: a client, the id of its request, and the last `seq` that it already has.

    delivery: frames that the client is too slow for are dropped under this name; a new request has a new name.
    """

    client: Client
    parent: str | None
    after_seq: int = -1
    delivery: str = field(default_factory=new_id)


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """What all jobs have in common. session: its id (of `Start`: a name of its own).

    requested_s: seconds after which its client no longer wants it. owner: the connection that it counts for in the
    queue. worker: the number of the one that has it. worker_deaths: how many workers died while they ran it.
    stop_error: what the client is sent once the worker has stopped the job; None while nobody has asked for a stop.
    """

    session: str
    subscriber: Subscriber
    accepted_at: float
    deadline_at: float
    requested_s: float = math.inf
    id: str = field(default_factory=new_id)
    owner: object = None
    worker: int | None = None
    started_at: float | None = None
    deadline_extended: bool = False
    worker_deaths: int = 0
    stop_error: AnimeGamerError | None = None
    over: bool = False

    NOUN: ClassVar[str]
    FINISHED: ClassVar[type[TurnFinished | ExportFinished | GameStarted]]
    """What the worker says at its end."""

    @property
    def about(self) -> tuple[str | None, int | None]:
        """The session and the turn, as far as its client knows them."""
        return self.session, None

    @property
    def listener(self) -> Subscriber:
        """Who is sent its error, and messages that are no event."""
        return self.subscriber

    @property
    def holds_up(self) -> bool:
        """Whether it takes much longer than a turn now, so that others must not be charged for their waiting."""
        return True

    @property
    def queued_s(self) -> float:
        """Seconds that it waited before it ran."""
        return 0.0 if self.started_at is None else self.started_at - self.accepted_at

    def take_back(self) -> None:
        """Take the job back from its worker before it has started. Late messages about the old id are ignored."""
        self.worker, self.id = None, new_id()

    def end(self) -> None:
        """Note that its last message was sent, and free what it holds."""
        # A reference cycle, job to error to traceback to job, would keep the frames for a long time.
        self.over, self.stop_error = True, None

    def extend_deadline(self, seconds: float) -> None:
        """Give it more time, once, but not more than its client asked for."""
        if not self.deadline_extended:
            self.postpone_deadline(seconds)
            self.deadline_extended = True

    def postpone_deadline(self, seconds: float) -> None:
        """Move the server's own deadline; one that the client asked for stays."""
        latest = max(self.deadline_at, self.accepted_at + self.requested_s)
        self.deadline_at = min(self.deadline_at + seconds, latest)


@dataclass(slots=True, eq=False, kw_only=True)
class Played(Job):
    """A turn or a replay of one: a job with numbered events, which a client may follow from another connection.

    last_seq: of the newest event that the worker sent. has_picture: whether its first picture was sent.
    predicts_again: whether shots of earlier turns have to be predicted before it begins.
    events: all so far, or None when they became too many bytes to hold.
    late_subscriber: came when `events` was None, or wants its frames in another form; gets the turn rendered again once
        this job is over.
    """

    turn: int
    turn_id: str
    instruction: str
    seed: int
    frame_options: FrameOptions
    last_seq: int = 0
    has_picture: bool = False
    predicts_again: bool = False
    events: list[Message] | None = field(default_factory=list)
    events_bytes: int = 0
    late_subscriber: Subscriber | None = None

    FINISHED = TurnFinished

    @property
    def about(self) -> tuple[str | None, int | None]:
        """Session and turn."""
        return self.session, self.turn

    @property
    def listener(self) -> Subscriber:
        """The one that came last."""
        return self.late_subscriber or self.subscriber

    @property
    def holds_up(self) -> bool:
        """Only while it predicts earlier turns again."""
        return self.predicts_again

    def end(self) -> None:
        """Free the events, too."""
        Job.end(self)
        self.events = None

    def accepted(self, place: int, estimate_s: float) -> Message:
        """Its first event. place: how many jobs come before it."""
        fields = {
            "turn_id": self.turn_id,
            "place": place,
            "estimate_s": estimate_s,
            "instruction": self.instruction,
            "replayed": not isinstance(self, Turn),
        }
        return Message("accepted", fields, session=self.session, turn=self.turn, seq=0)

    def hold(self, message: Message) -> None:
        """Keep an event for a client that comes back before the turn's end."""
        if self.events is not None:
            self.events_bytes += size_of(message)
            self.events.append(message)
            if self.events_bytes > MAX_EVENTS_BYTES:
                self.events = None

    def wants(self, message: Message) -> bool:
        """Whether the subscriber lacks an event. `done` is sent in any case: it answers the request."""
        seq = message.seq
        return self.late_subscriber is None and (
            seq is None or seq > self.subscriber.after_seq or message.type == "done"
        )

    def replay_for(self, subscriber: Subscriber, now: float) -> Replay:
        """A replay for a client that came back too late for the events; it gets as long as the turn had."""
        return Replay(
            session=self.session,
            subscriber=subscriber,
            accepted_at=now,
            deadline_at=now + self.deadline_at - self.accepted_at,
            requested_s=self.requested_s,
            turn=self.turn,
            turn_id=self.turn_id,
            instruction=self.instruction,
            seed=self.seed,
            frame_options=subscriber.client.frame_options or self.frame_options,
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Turn(Played):
    """The next turn of a session. stored: its result is in the store, and its frames are still to come."""

    stored: bool = False

    NOUN = "turn"


@dataclass(slots=True, eq=False, kw_only=True)
class Replay(Played):
    """A finished turn once more: the same bytes, and nothing is added to the session."""

    NOUN = "replay"


@dataclass(slots=True, eq=False, kw_only=True)
class Export(Job):
    """All turns of a session as files. folder: where the worker writes them; None until it is given the job."""

    folder: Path | None = None

    NOUN = "export"
    FINISHED = ExportFinished


@dataclass(slots=True, eq=False, kw_only=True)
class Start(Job):
    """Turn 0 of a game that starts from a picture (the bytes of its file); no session is open yet.

    seed: of the session that is opened then.
    """

    picture: Buffer
    work: StartJob
    seed: int

    NOUN = "start"
    FINISHED = GameStarted

    @property
    def about(self) -> tuple[str | None, int | None]:
        """Its client knows no session yet."""
        return None, None


Said = TurnResult | PredictedShots | TurnFinished | ExportFinished | GameStarted | JobFailed | Message


def read_said(job: Job, message: Message) -> Said:
    """What a worker's message about a job is: one of the records for the server, else an event of its client.

    Raises ConfigError for a record that lacks a field.
    """
    kinds: Mapping[str, Any] = {kind.TYPE: kind for kind in (TurnResult, PredictedShots, job.FINISHED, JobFailed)}
    kind = kinds.get(message.type)
    return message if kind is None else kind.from_message(message)


def size_of(message: Message) -> int:
    """Bytes that holding a message takes."""
    return sum(len(buffer) for buffer in message.buffers) + EVENT_OVERHEAD_BYTES


def stopped(job: Job, code: str) -> ProtocolError:
    """The error of a job that was stopped: cancelled, deadline, draining or busy."""
    longer = ", with a longer deadline_s if you gave one" if isinstance(job, Played) else ""
    noun = {"export": "export", "start": "start from a picture"}.get(job.NOUN, "turn")
    what, do = {
        "cancelled": (f"the {noun} was cancelled", None),
        "deadline": (f"the {noun} did not finish in time", f"send it again{longer}"),
        "draining": ("the server is stopping", "connect again later; the session is kept"),
        "busy": ("the connection was lost and others wait", "send the turn again"),
    }[code]
    return ProtocolError(what, code=code, do=do)


def poisonous(job: Job, reason: str) -> ProtocolError:
    """The error of a job that cost too many workers."""
    what = f"the worker died {job.worker_deaths} times on this turn"
    do = "send another instruction; the operator finds the reason in worker.log"
    return ProtocolError(what, code="worker_failed", found=reason, do=do)


def fault() -> ProtocolError:
    """The error of a job or a request that the server could not go on with."""
    return ProtocolError("a fault of the server", code="internal", do="the operator finds it in the log")
