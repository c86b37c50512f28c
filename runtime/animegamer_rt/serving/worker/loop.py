"""The worker's loop: takes jobs from the front process, sends what they say, and listens between two messages.

Knows the socket and the order of things; what a job does is `turn`'s and `export`'s. The front hands over the next job
while one runs; it is begun as soon as that one has said its last word. Where the engines overlap, a second thread
predicts its turn beforehand, while the running one is denoised; when no job waits, the history of a player who is
alone is read for the next turn. A job that fails is answered and forgotten; a device that is lost ends the worker: the
front starts another and gives it the jobs again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import zmq

from animegamer_rt.bundle.config import check_choice
from animegamer_rt.errors import AnimeGamerError, DeviceLostError, ProtocolError, TurnCancelled
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling.trace import PREFETCH
from animegamer_rt.serving.wire import WORKER_LIMITS, Message, decode, encode
from animegamer_rt.session import Session

from .game_export import render_game
from .messages import ReplyBuilder
from .turn import PreparedTurn, play_turn, prepare_turn

KINDS = ("turn", "export")
ALIVE_SECONDS = 1.0
"""How often a job that has nothing to say lets the front process know that it still runs."""
QUIET_MS = 50
"""Silence after which a history is read ahead: a program that never pauses asks sooner, and would wait for it."""

log = logging.getLogger("animegamer_rt.serving.worker")


@dataclass(slots=True)
class _Waiting:
    """A job that runs or is to run."""

    message: Message
    cancelled: bool = False
    ahead: Future[PreparedTurn] | None = None
    """Its turn, being predicted while another one is denoised."""

    def is_meant_by(self, cancel: Message) -> bool:
        """Whether a `cancel` is about this job: it names the job's id, or session and turn."""
        if cancel.id is not None:
            return cancel.id == self.message.id
        return (cancel.session, cancel.turn) == (self.message.session, self.message.turn)

    def cancel(self) -> None:
        """It is not to run (on); its shots, which are megabytes, need not be held until its end."""
        self.cancelled, self.message = True, replace(self.message, buffers=())

    def begun(self) -> PreparedTurn | None:
        """Its turn, if it was predicted ahead. What failed is tried again when its turn comes, and may fail again."""
        return None if self.ahead is None or self.ahead.exception() else self.ahead.result()


class Worker:
    """Runs jobs with `pipeline` until it is told to stop. The socket is a DEALER connected to the front process.

    at_rest: called when nothing waits any more after a job.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], pipeline: Pipeline, at_rest: Callable[[], object] | None = None
    ) -> None:
        self._socket, self._pipeline, self._at_rest = socket, pipeline, at_rest
        self._jobs: deque[_Waiting] = deque()
        self._ahead = ThreadPoolExecutor(1, PREFETCH)
        self._predicted = False
        self._player: str | None = None
        # The game played last, if the turn before was its own too: where several play, the next job is another's.
        self._game: Session | None = None
        self._stopping = False
        self._spoke = 0.0

    def run(self) -> None:
        """Returns after `stop`. Raises DeviceLostError: the job that met it is not answered, no other is run."""
        with self._ahead:
            while not self._stopping:
                if self._jobs:
                    self._run(self._jobs[0])
                    self._jobs.popleft()
                else:
                    if (self._game or self._at_rest) and not self._socket.poll(QUIET_MS):
                        if self._game is not None:
                            self._read_history(self._game)
                        if self._at_rest is not None:
                            self._at_rest()
                    self._hear(self._socket.recv_multipart())
                self._listen()

    def _run(self, job: _Waiting) -> None:
        self._predicted = False
        try:
            self._stop_if_cancelled(job)
            kind = check_choice(str(job.message.fields.get("kind")), KINDS, f"job {job.message.id}: kind")
            with contextlib.closing(self._answers(kind, job)) as messages:
                for message in messages:
                    self._stop_if_cancelled(job)
                    self._send(message)
                    self._predicted = self._predicted or message.type == "state"
                    self._look_ahead()
        except TurnCancelled as error:
            self._fail(job, error.code, error.text)
        except DeviceLostError:
            raise
        except AnimeGamerError as error:
            log.warning("job %s failed: %s", job.message.id, error)
            self._fail(job, error.code, error.text, error.do)
        except Exception as error:  # the engines are whole, and the next job is another player's
            log.exception("job %s failed", job.message.id)
            self._fail(job, "internal", f"{type(error).__name__}: {error}")

    def _answers(self, kind: str, job: _Waiting) -> Generator[Message, None, None]:
        if kind == "export":
            return render_game(self._pipeline, job.message)
        begun = job.begun() or prepare_turn(self._pipeline, job.message, lambda: self._alive(job))
        self._game = begun.session if job.message.session == self._player else None
        self._player = job.message.session
        return play_turn(self._pipeline, begun)

    def _read_history(self, game: Session) -> None:
        """Reads the history of the game played last, so that its next turn has only itself to read.

        A job that comes meanwhile waits for that one call.
        """
        self._game = None
        try:
            self._ahead.submit(self._pipeline.predictor.prepare, game.history).result()
        except Exception:  # the next turn reads it itself, and is answered with what is wrong
            log.exception("a history could not be read ahead of its turn")

    def _look_ahead(self) -> None:
        """Has the next turn predicted, once the running one has been: any sooner would take the predictor from that."""
        if not self._pipeline.concurrent_prediction or not self._predicted:
            return
        follower = next((job for job in islice(self._jobs, 1, None) if not job.cancelled), None)
        if follower is not None and follower.ahead is None and follower.message.fields.get("kind") == "turn":
            follower.ahead = self._ahead.submit(prepare_turn, self._pipeline, follower.message, _not_ahead, ahead=True)

    def _fail(self, job: _Waiting, code: str, text: str, do: str | None = None) -> None:
        fields: Mapping[str, Any] = {"code": code, "text": text} | ({"do": do} if do else {})
        self._send(ReplyBuilder(job.message).note("failed", fields))

    def _alive(self, job: _Waiting) -> None:
        if time.monotonic() - self._spoke >= ALIVE_SECONDS:
            self._send(ReplyBuilder(job.message).note("alive", {}))
        self._stop_if_cancelled(job)

    def _stop_if_cancelled(self, job: _Waiting) -> None:
        self._listen()
        if job.cancelled:
            raise TurnCancelled("the turn was cancelled", where=f"turn {job.message.turn}")

    def _listen(self) -> None:
        """Takes in whatever has arrived, without waiting."""
        while self._socket.poll(0):
            self._hear(self._socket.recv_multipart())

    def _hear(self, frames: list[bytes]) -> None:
        try:
            message = decode(frames, WORKER_LIMITS, check=False)
        except ProtocolError as error:
            log.warning("ignored a message: %s", error)
            return
        if message.type == "job":
            self._jobs.append(_Waiting(message))
        elif message.type == "cancel":
            for job in self._jobs:
                if job.is_meant_by(message):
                    job.cancel()
        elif message.type == "stop":
            self._stopping = True
            for job in self._jobs:
                job.cancel()
        else:
            log.warning("ignored a message of unknown type %r", message.type)

    def _send(self, message: Message) -> None:
        self._spoke = time.monotonic()
        self._socket.send_multipart(encode(message), copy=False)


def _not_ahead() -> None:
    """Shots that are missing are predicted in their own turn, which says meanwhile that it is alive."""
    raise TurnCancelled("not predicted ahead")
