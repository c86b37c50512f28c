"""The worker's loop: takes jobs from the server, sends the replies, and reads the socket between two messages.

What a job does is in `turn` and `game_export`.

- The server sends the next job while one runs. The worker starts it as soon as the running one has ended.
- If the engines allow it, a second thread predicts the next job's turn while the running one is denoised.
- When no job waits and only one player is active, the second thread reads that player's history for the next turn.
- A failed job is answered with `failed`. A lost device ends the worker: the server starts another one and sends it the
  jobs again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import zmq

from animegamer_rt.bundle.config import check_choice
from animegamer_rt.errors import AnimeGamerError, DeviceLostError, ProtocolError, TurnCancelled
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling.process_memory import RELEASE_S, release_free
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.codec import WORKER_LIMITS, Message, decode, encode
from animegamer_rt.serving.wire.worker_messages import (
    CANCEL,
    EXPORT,
    HEARTBEAT,
    JOB,
    PREDICT,
    START,
    STOP,
    TURN,
    JobFailed,
)
from animegamer_rt.session import Session

from .game_export import export_turn
from .game_start import PictureStart, start_game
from .replies import ReplyBuilder
from .turn import PreparedTurn, play_turn, predict_history, prepare_turn

HEARTBEAT_S = 1.0
"""Interval between signs of life of a job that has nothing to send."""
LOOK_S = 0.001
"""Shortest interval between two reads of the socket. The frames of a chunk follow each other faster than that."""
IDLE_MS = 50
"""Idle time before a history is read ahead. A program that plays without pauses sends its next turn sooner, and would
have to wait for that read."""

log = logging.getLogger("animegamer_rt.serving.worker")


@dataclass(slots=True)
class _QueuedJob:
    """A job of this worker: the first of the queue runs, the others wait."""

    message: Message
    cancelled: bool = False
    prepared: Future[PreparedTurn] | None = None
    """Its turn, if it was predicted while another one was denoised."""

    def cancel(self) -> None:
        """Mark it as cancelled, and free its shots, which take megabytes."""
        self.cancelled, self.message = True, replace(self.message, fields={})

    def prepared_turn(self) -> PreparedTurn | None:
        """Its turn, if it was predicted ahead without error. After an error it is prepared again."""
        return None if self.prepared is None or self.prepared.exception() else self.prepared.result()


class Worker:
    """Runs jobs with `pipeline` until told to stop. The socket is a DEALER connected to the server.

    pictures: starts games from pictures; None: the bundle or its engines cannot.
    """

    def __init__(self, socket: zmq.Socket[bytes], pipeline: Pipeline, pictures: PictureStart | None = None) -> None:
        self._socket, self._pipeline, self._pictures = socket, pipeline, pictures
        self._jobs: deque[_QueuedJob] = deque()
        self._prefetch = ThreadPoolExecutor(1, "ahead")
        self._state_sent = False
        """Whether the running turn has been predicted: only then is the predictor free for the next one."""
        self._last_session: str | None = None
        self._likely_next_session: Session | None = None
        """The last turn's session, unless another player had the turn before: the next one is likely this player's."""
        self._stopping = False
        self._sent_at = self._looked_at = self._release_at = 0.0

    def run(self) -> None:
        """Return after `stop`. Raises DeviceLostError: the running job then gets no reply, and no other is run."""
        with self._prefetch:
            while not self._stopping:
                if self._jobs:
                    self._run(self._jobs[0])
                    self._jobs.popleft()
                    self._release_memory()
                else:
                    self._idle()
                    self._handle(self._socket.recv_multipart())
                self._read_socket()

    def _release_memory(self) -> None:
        if time.monotonic() >= self._release_at:
            release_free()
            self._release_at = time.monotonic() + RELEASE_S

    def _idle(self) -> None:
        if self._likely_next_session is not None and not self._socket.poll(IDLE_MS):
            self._read_history(self._likely_next_session)
            self._likely_next_session = None

    def _run(self, job: _QueuedJob) -> None:
        self._state_sent = False
        try:
            self._raise_if_cancelled(job)
            with contextlib.closing(self._messages(job)) as messages:
                for message in messages:
                    if time.monotonic() - self._looked_at >= LOOK_S:
                        self._raise_if_cancelled(job)
                    self._send(message)
                    self._state_sent = self._state_sent or message.type == "state"
                    self._predict_next()
        except TurnCancelled as error:
            self._fail(job, JobFailed(error.code, error.text))
        except DeviceLostError:
            raise
        except AnimeGamerError as error:
            log.warning("job %s failed: %s", job.message.id, error)
            do = error.do and without_folders(error.do)
            self._fail(job, JobFailed(error.code, client_text(error), do, tuple(error.answer)))
        except Exception:  # the next job is another player's; the server replaces a worker that fails them all
            log.exception("job %s failed", job.message.id)
            self._fail(job, JobFailed("internal", "the worker failed", "try again; worker.log has the reason"))

    def _messages(self, job: _QueuedJob) -> Generator[Message, None, None]:
        message, pipeline, heartbeat = job.message, self._pipeline, partial(self._heartbeat, job)
        kind = check_choice(str(message.fields.get("kind")), (TURN, PREDICT, EXPORT, START), f"job {message.id}: kind")
        if kind == EXPORT:
            return export_turn(pipeline, message, heartbeat)
        if kind == PREDICT:
            return predict_history(pipeline, message, heartbeat)
        if kind == START:
            return start_game(pipeline, message, self._pictures, heartbeat)
        prepared = job.prepared_turn() or prepare_turn(pipeline, message, heartbeat)
        self._likely_next_session = prepared.session if self._last_session in (None, message.session) else None
        self._last_session = message.session
        return play_turn(pipeline, prepared)

    def _read_history(self, session: Session) -> None:
        """Have the predictor read the session's history now, so that the next turn reads only its own instruction.

        A job that arrives meanwhile waits for this one call.
        """
        try:
            self._prefetch.submit(self._pipeline.predictor.prepare, session.history).result()
        except Exception:  # the next turn reads the history itself, and reports the error if it persists
            log.exception("reading a history ahead of its turn failed")

    def _predict_next(self) -> None:
        """Have the next turn predicted while the running one is denoised, not earlier: that one needs the predictor."""
        if not self._pipeline.concurrent_prediction or not self._state_sent:
            return
        job = next((job for job in islice(self._jobs, 1, None) if not job.cancelled), None)
        if job is not None and job.prepared is None and job.message.fields.get("kind") == TURN:
            job.prepared = self._prefetch.submit(prepare_turn, self._pipeline, job.message, _not_ahead, ahead=True)

    def _fail(self, job: _QueuedJob, failure: JobFailed) -> None:
        self._send(ReplyBuilder(job.message).to_server(failure))

    def _heartbeat(self, job: _QueuedJob) -> None:
        if time.monotonic() - self._sent_at >= HEARTBEAT_S:
            self._send(ReplyBuilder(job.message).heartbeat())
        self._raise_if_cancelled(job)

    def _raise_if_cancelled(self, job: _QueuedJob) -> None:
        self._read_socket()
        if job.cancelled:
            raise TurnCancelled("the turn was cancelled", where=f"turn {job.message.turn}")

    def _read_socket(self) -> None:
        """Handle the messages that have arrived, without waiting for more."""
        self._looked_at = time.monotonic()
        while self._socket.poll(0):
            self._handle(self._socket.recv_multipart())

    def _handle(self, frames: list[bytes]) -> None:
        try:
            message = decode(frames, WORKER_LIMITS, check=False)
        except ProtocolError as error:
            log.warning("ignored an invalid message: %s", error)
            return
        if message.type == JOB:
            self._jobs.append(_QueuedJob(message))
        elif message.type == CANCEL:
            for job in self._jobs:
                if job.message.id == message.id:
                    job.cancel()
        elif message.type == STOP:
            self._stopping = True
            for job in self._jobs:
                job.cancel()
        elif message.type != HEARTBEAT:
            log.warning("ignored a message of unknown type %r", message.type)

    def _send(self, message: Message) -> None:
        self._sent_at = time.monotonic()
        self._socket.send_multipart(encode(message), copy=False)


def _not_ahead() -> None:
    """Earlier turns are predicted again only when their own turn runs, since heartbeats can be sent then."""
    raise TurnCancelled("not predicted ahead")
