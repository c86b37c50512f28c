"""Jobs for a worker: play a turn or replay it, export a game, or start one from a picture.

A job records its subscriber, its deadline and the events sent so far. Times are of the monotonic clock.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from animegamer_rt.errors import AnimeGamerError, ProtocolError
from animegamer_rt.noise import VERSION
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import (
    ExportFinished,
    FrameOptions,
    GameStarted,
    JobFailed,
    PartFinished,
    PredictedShots,
    Reply,
    StartJob,
    TurnFinished,
    TurnResult,
)

from .clients import Client

MAX_EVENTS_BYTES = 48 * 2**20
"""Most bytes of a running turn's events kept for a client that reconnects: two full-size clips."""
EVENT_OVERHEAD_BYTES = 256
"""Counted per event on top of its buffers."""


def new_id() -> str:
    """A unique, unguessable id."""
    return secrets.token_hex(8)


@dataclass(slots=True)
class Subscriber:
    """Where a job's events go: a client, the id of its request, and the last `seq` that it has.

    delivery: groups the frames that are dropped together if the client is slow; each request has its own.
    """

    client: Client
    parent: str | None
    after_seq: int = -1
    delivery: str = field(default_factory=new_id)


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """What all jobs have in common. session: its id (of `Start`: a placeholder).

    requested_s: seconds after which its client no longer wants it. cost_turns: the worker's time for it, in turns.
    owner: the holder charged for it in the queue.
    worker: the number of the worker that has it. worker_deaths: how many workers died running it. suspect: it may kill
    the next one too (`dispatch.Suspects`). stop_error: what the client is sent once the worker has stopped the job;
    None unless it is being stopped.
    """

    session: str
    subscriber: Subscriber
    accepted_at: float
    deadline_at: float
    requested_s: float = math.inf
    cost_turns: float = 1.0
    id: str = field(default_factory=new_id)
    owner: object = None
    worker: int | None = None
    started_at: float | None = None
    deadline_extended: bool = False
    worker_deaths: int = 0
    suspect: bool = False
    stop_error: AnimeGamerError | None = None
    over: bool = False

    NOUN: ClassVar[str]
    FINISHED: ClassVar[type[TurnFinished | ExportFinished | GameStarted]]
    """The worker's last message about it."""

    @property
    def about(self) -> tuple[str | None, int | None]:
        """The session and the turn, as far as its client knows them."""
        return self.session, None

    @property
    def subject(self) -> tuple[str, str]:
        """Who asks for what: the same for each job that asks for the same again."""
        return self.session, self.NOUN

    @property
    def listener(self) -> Subscriber:
        """Receives its error, and messages that are not events."""
        return self.subscriber

    @property
    def queued_s(self) -> float:
        """Seconds it waited before it ran."""
        return 0.0 if self.started_at is None else self.started_at - self.accepted_at

    def take_back(self) -> None:
        """Take the job back from its worker before it has started. Late messages about the old id are ignored."""
        self.worker, self.id = None, new_id()

    def end(self) -> None:
        """Mark the job over once its last message was sent, and free what it holds."""
        # A reference cycle, job to error to traceback to job, would keep the frames for a long time.
        self.over, self.stop_error = True, None

    def extend_deadline(self, seconds: float) -> None:
        """Give it more time, once, but no more than its client asked for."""
        if not self.deadline_extended:
            self.postpone_deadline(seconds)
            self.deadline_extended = True

    def postpone_deadline(self, seconds: float) -> None:
        """Move the server's own deadline; one set by the client stays."""
        latest = max(self.deadline_at, self.accepted_at + self.requested_s)
        self.deadline_at = min(self.deadline_at + seconds, latest)


@dataclass(slots=True, eq=False, kw_only=True)
class Rendered(Job):
    """A job that renders a turn. noise_version: of its noise (`noise.VERSION`).

    predicts: the worker was given only a part of the earlier turns that must be predicted again first.
    """

    turn: int
    instruction: str
    seed: int
    noise_version: int = VERSION
    frame_options: FrameOptions = FrameOptions()
    predicts: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class Played(Rendered):
    """A turn or replay: a job with numbered events, which a client may follow from another connection.

    last_seq: of the worker's newest event. has_picture: whether its first picture was sent. events: all so far, or None
    once they exceeded the limit.
    late_subscriber: came when `events` was None, or wants another frame format; gets the turn replayed after this job.
    """

    turn_id: str
    last_seq: int = 0
    has_picture: bool = False
    events: list[Message] | None = field(default_factory=list)
    events_bytes: int = 0
    late_subscriber: Subscriber | None = None

    FINISHED = TurnFinished

    @property
    def about(self) -> tuple[str | None, int | None]:
        """Session and turn."""
        return self.session, self.turn

    @property
    def subject(self) -> tuple[str, str]:
        """Session and instruction."""
        return self.session, self.instruction

    @property
    def listener(self) -> Subscriber:
        """The latest subscriber."""
        return self.late_subscriber or self.subscriber

    def end(self) -> None:
        """Free the events too."""
        Job.end(self)
        self.events = None

    def accepted(self, place: int, estimate_s: float) -> Message:
        """Its first event. place: how many jobs are ahead of it."""
        fields = {
            "turn_id": self.turn_id,
            "place": place,
            "estimate_s": estimate_s,
            "instruction": self.instruction,
            "replayed": not isinstance(self, Turn),
        }
        return Message("accepted", fields, session=self.session, turn=self.turn, seq=0)

    def hold(self, message: Message) -> None:
        """Keep an event for a client that reconnects before the turn ends."""
        if self.events is not None:
            self.events_bytes += size_of(message)
            self.events.append(message)
            if self.events_bytes > MAX_EVENTS_BYTES:
                self.events = None

    def wants(self, message: Message) -> bool:
        """Whether the subscriber lacks an event. `done` is always sent: it answers the request."""
        seq = message.seq
        return self.late_subscriber is None and (
            seq is None or seq > self.subscriber.after_seq or message.type == "done"
        )

    def follow(self, subscriber: Subscriber) -> list[Message]:
        """Another connection or request follows it. Returns the events so far; late_subscriber gets none of them."""
        if self.events is None or subscriber.client.frame_options != self.frame_options:
            self.late_subscriber = subscriber
            return []
        self.subscriber, self.late_subscriber = subscriber, None
        return self.events

    def replay_for(self, subscriber: Subscriber, now: float) -> Replay:
        """A replay for a client that reconnected too late for the events; it gets as long as the turn had."""
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
            noise_version=self.noise_version,
            frame_options=subscriber.client.frame_options or self.frame_options,
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Turn(Played):
    """The next turn of a session. stored: its result is in the store, its frames are still to come.

    fault: one to rehearse.
    """

    stored: bool = False
    fault: str = ""

    NOUN = "turn"


@dataclass(slots=True, eq=False, kw_only=True)
class Replay(Played):
    """Renders a finished turn again: the same bytes, and the session does not change."""

    NOUN = "replay"


@dataclass(slots=True, eq=False, kw_only=True)
class Export(Rendered):
    """All turns of a session as files, one after the other. turn: the next one; turns: how many there are.

    folder: where the worker writes them; None until the job is dispatched.
    """

    turn: int = 1
    instruction: str = ""
    seed: int = 0
    turns: int
    folder: Path | None = None

    NOUN = "export"
    FINISHED = ExportFinished


@dataclass(slots=True, eq=False, kw_only=True)
class Start(Job):
    """Turn 0 of a game that starts from a picture. seed: of the session opened afterwards."""

    work: StartJob
    seed: int

    NOUN = "start"
    FINISHED = GameStarted

    @property
    def about(self) -> tuple[str | None, int | None]:
        """Its client knows no session yet."""
        return None, None

    @property
    def subject(self) -> tuple[str, str]:
        """Its picture and motion: each request has another session."""
        return hashlib.sha256(self.work.picture).hexdigest(), self.work.motion


def read_reply(job: Job, message: Message) -> Reply | Message:
    """Decode a worker's message about a job: one of the records for the server, else an event for its client.

    Raises ConfigError for a record with a missing field.
    """
    kinds: Mapping[str, Any] = {
        kind.TYPE: kind for kind in (TurnResult, PredictedShots, PartFinished, job.FINISHED, JobFailed)
    }
    kind = kinds.get(message.type)
    return message if kind is None else kind.from_message(message)


def size_of(message: Message) -> int:
    """Bytes that a held message takes."""
    shots = message.fields.get("shots")  # of a worker's result
    held = (*message.buffers, *(shots.values() if isinstance(shots, Mapping) else ()))
    return sum(map(len, held)) + EVENT_OVERHEAD_BYTES


def stopped(job: Job, code: str) -> ProtocolError:
    """The error of a job that was stopped: cancelled, deadline, draining or busy."""
    longer = ", with a longer deadline_s if you gave one" if isinstance(job, Played) else ""
    noun = {"export": "export", "start": "start from a picture"}.get(job.NOUN, "turn")
    what, do = {
        "cancelled": (f"the {noun} was cancelled", None),
        "deadline": (f"the {noun} did not finish in time", f"send it again{longer}"),
        "draining": ("the server is stopping", "connect again later; the session is kept"),
        "busy": ("the connection was lost and the queue is full", "send the turn again"),
    }[code]
    return ProtocolError(what, code=code, do=do)


def fault() -> ProtocolError:
    """The error of a job or request that hit a fault of the server."""
    return ProtocolError("internal server error", code="internal", do="see the server's log")
