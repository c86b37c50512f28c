"""A scheduler with its queue, before a store and workers that do what a test says, and connections that listen."""

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
from animegamer_rt.serving.server.workers import Workers
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import FrameOptions, TurnResult
from animegamer_rt.state.game import CharacterState, GameState

SHOT = bytes(2)


class FakeWorker:
    """In the place of WorkerProcess. `given`: ids of the jobs that it has and was not told to drop, in order."""

    def __init__(self, number: int) -> None:
        self.serving, self.degraded, self.warmup_s, self.last_error = True, False, 0.0, "killed"
        self.ready_info, self.number, self.failed_at = None, number, 0.0
        self.session: str | None = None
        self.given_at = 0.0
        self.given: list[str] = []

    def dispatch(self, job: Message, now: float) -> None:
        assert self.serving and job.id is not None
        self.given.append(job.id)
        self.session, self.given_at = job.session, now
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
    """The scheduler, and what its clients and its workers say."""

    def __init__(self, store: Store, metrics: Metrics | None = None, **options: Any) -> None:
        self.store, self.options = store, ServeOptions(**options)
        self.workers = [FakeWorker(number) for number in range(1, self.options.workers + 1)]
        self.worker = self.workers[0]
        self.queue = JobQueue(self.options)
        metrics = metrics or Metrics()
        ahead = AheadTurns(self.options, store, self.queue, metrics, InstructionFilter(), None)
        workers: Any = Workers(self.workers)  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.options, store, self.queue, workers, metrics, ahead)

    def job(
        self, kind: JobKind, session: str, client: Connection, turn: int, now: float = 0.0, deadline_s: float = 1e9
    ) -> Job:
        """A job as the request handlers make it, not yet admitted."""
        subscriber = Subscriber(client, f"{session}-{turn}")  # type: ignore[arg-type]
        about: Mapping[str, Any] = {"turn": turn, "turn_id": f"{turn}", "instruction": "Mia waves.", "seed": 7}
        return Job(kind, session, subscriber, client.frame_options, now, now + deadline_s, **about)

    def say(self, job_id: str, kind: str, now: float = 0.0, seq: int | None = None, **fields: Any) -> None:
        """A message about a job of the worker that has it."""
        self.hear(Message(kind, fields, parent=job_id, seq=seq), now)

    def settle(self, job_id: str, turn: int, now: float = 0.0) -> None:
        """The worker sends a turn's result."""
        state = GameState(motion_level=1, social=1, entertainment=1, stamina=1)
        result = TurnResult(state, CharacterState().after(state), {turn: SHOT})
        message = Message(result.TYPE, result.to_fields(), parent=job_id, buffers=result.buffers())
        self.hear(message, now)

    def hear(self, message: Message, now: float) -> None:
        """A message of the worker that was given its job."""
        worker: Any = next(worker for worker in self.workers if message.parent in worker.given)
        self.scheduler.on_worker_message(worker, message, now)
