"""Effects: what the core and the request handlers want done. Plain records; the server carries them out in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire.codec import Buffer, Message
from animegamer_rt.serving.wire.worker_messages import GameStarted

from .clients import Client
from .jobs import Job, Played, Start


@dataclass(frozen=True, slots=True)
class Send:
    """A message for a client. delivery: the turn whose frames are dropped together if the client does not read."""

    client: Client
    message: Message
    delivery: str | None = None


@dataclass(frozen=True, slots=True)
class SendError:
    """An error for a client; parent: the id of its request."""

    client: Client
    error: AnimeGamerError
    parent: str | None = None
    session: str | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Give:
    """An encoded job for a worker, to run after its current one."""

    worker: int
    frames: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell a worker to stop the job of this id."""

    worker: int
    job: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has sent its last message about a job. has_next: it has another job. failed: by a fault of its own."""

    worker: int
    has_next: bool
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    """A worker answers, but fails every turn: end it and start another process."""

    worker: int


@dataclass(frozen=True, slots=True)
class Started:
    """A worker has made turn 0 from a picture: the session can be opened."""

    job: Start
    start: GameStarted


@dataclass(frozen=True, slots=True)
class Done:
    """A turn or replay is done. seconds: by stage. worker: the one that played it; None if it was speculative."""

    noun: str
    session: str
    turn: int
    seconds: dict[str, float]
    worker: int | None


NO_FAULTS = frozenset(("cancelled", "not_understood", "undo", "picture"))
"""Codes of jobs that end as a player asked, or because of what the player sent: nothing for an operator to mend."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A job ended with an error of this code. worker: the one whose fault it was, if it was one's."""

    noun: str
    code: str
    session: str
    turn: int | None
    worker: int | None = None

    @property
    def is_failure(self) -> bool:
        """Whether an operator should look at it."""
        return self.code not in NO_FAULTS


@dataclass(frozen=True, slots=True)
class Counted:
    """A figure for the metrics."""

    what: Literal["first_picture", "ahead_offered", "ahead_used", "ahead_wasted_seconds"]
    amount: float = 1.0


@dataclass(frozen=True, slots=True)
class Logged:
    """A log line; error: a fault whose traceback is logged too."""

    level: int
    text: str
    error: Exception | None = None


Effect = Send | SendError | Give | Cancel | Ended | Replace | Started | Done | Lost | Counted | Logged


class Effects(list[Effect]):
    """The effects of the event that is being handled, in order."""

    def take(self) -> list[Effect]:
        """All so far; none is left."""
        taken = self.copy()
        self.clear()
        return taken

    def publish(self, job: Played, message: Message) -> None:
        """Send an event of the turn, and keep it for a client that reconnects before the turn ends."""
        job.hold(message)
        self.deliver(job, message)

    def deliver(self, job: Played, message: Message) -> None:
        """Send an event of the turn if the job's client lacks it."""
        if job.wants(message):
            to = job.subscriber
            self.append(Send(to.client, replace(message, parent=to.parent), to.delivery))

    def notify(self, job: Job, message: Message) -> None:
        """Send a message about the job that is not a numbered event."""
        to, (session, turn) = job.listener, job.about
        self.append(Send(to.client, replace(message, parent=to.parent, session=session, turn=turn)))

    def send_error(self, job: Job, error: AnimeGamerError) -> None:
        """Send the job's client its error."""
        to, (session, turn) = job.listener, job.about
        self.append(SendError(to.client, error, to.parent, session, turn))
