"""A scheduler with its queue, before a store and a worker that do what a test says, and connections that listen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from animegamer_rt.serving.server.ahead import AheadTurns
from animegamer_rt.serving.server.instruction_filter import InstructionFilter
from animegamer_rt.serving.server.job_queue import JobQueue
from animegamer_rt.serving.server.jobs import Job, JobKind, Subscriber
from animegamer_rt.serving.server.metrics import Metrics
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.scheduler import Scheduler
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import FrameOptions, TurnResult
from animegamer_rt.state.game import CharacterState, GameState

SHOT = bytes(2)


class FakeWorker:
    """In the place of WorkerProcess. `given`: ids of the jobs that it has and was not told to drop, in order."""

    def __init__(self) -> None:
        self.serving, self.degraded, self.warmup_s, self.last_error = True, False, 0.0, "killed"
        self.ready_info = None
        self.given: list[str] = []

    def dispatch(self, job: Message, now: float) -> None:
        assert self.serving and job.id is not None
        self.given.append(job.id)
        assert len(self.given) <= 2, "one runs, one is ready"

    def send(self, message: Message) -> None:
        """A cancel. A job that has not begun is dropped; what runs goes on until the test ends it."""
        if message.id in self.given[1:]:
            self.given.remove(message.id)

    def job_ended(self, *, has_next: bool) -> None:
        self.given.pop(0)
        assert bool(self.given) == has_next

    def retry_in_s(self, now: float) -> float:
        return 0.5

    def die(self) -> None:
        self.given.clear()


class Connection:
    """What a client hears: the messages, errors as (code, parent)."""

    def __init__(self, frame_options: FrameOptions | None = None) -> None:
        self.frame_options = frame_options or FrameOptions()
        self.heard: list[Message] = []

    def send(self, message: Message, delivery: str | None = None) -> None:
        self.heard.append(message)

    def send_error(
        self, error: Any, parent: str | None = None, session: str | None = None, turn: int | None = None
    ) -> None:
        self.heard.append(Message("error", {"code": error.code}, parent=parent, session=session, turn=turn))

    def kinds(self) -> list[str]:
        return [message.fields.get("code", message.type) for message in self.heard]


class Scheduled:
    """The scheduler, and what its clients and its worker say."""

    def __init__(self, store: Store, metrics: Metrics | None = None, **options: Any) -> None:
        self.store, self.worker, self.options = store, FakeWorker(), ServeOptions(**options)
        self.queue = JobQueue(self.options)
        metrics = metrics or Metrics()
        ahead = AheadTurns(self.options, store, self.queue, metrics, InstructionFilter(), None)
        self.scheduler = Scheduler(self.options, store, self.queue, self.worker, metrics, ahead)  # type: ignore[arg-type]

    def job(
        self, kind: JobKind, session: str, client: Connection, turn: int, now: float = 0.0, deadline_s: float = 1e9
    ) -> Job:
        """A job as the request handlers make it, not yet admitted."""
        subscriber = Subscriber(client, f"{session}-{turn}")  # type: ignore[arg-type]
        about: Mapping[str, Any] = {"turn": turn, "turn_id": f"{turn}", "instruction": "Mia waves.", "seed": 7}
        return Job(kind, session, subscriber, client.frame_options, now, now + deadline_s, **about)

    def say(self, job_id: str, kind: str, now: float = 0.0, seq: int | None = None, **fields: Any) -> None:
        """A message of the worker about a job."""
        self.scheduler.on_worker_message(Message(kind, fields, parent=job_id, seq=seq), now)

    def settle(self, job_id: str, turn: int, now: float = 0.0) -> None:
        """The worker sends a turn's result."""
        state = GameState(motion_level=1, social=1, entertainment=1, stamina=1)
        result = TurnResult(state, CharacterState().after(state), {turn: SHOT})
        message = Message(result.TYPE, result.to_fields(), parent=job_id, buffers=result.buffers())
        self.scheduler.on_worker_message(message, now)
