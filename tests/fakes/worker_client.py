"""The server's end of a worker: jobs as the server makes them, and a game played a job at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import zmq

from animegamer_rt.noise import VERSION
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire.codec import WORKER_LIMITS, Message, decode, encode
from animegamer_rt.serving.wire.worker_messages import ExportJob, FrameOptions, TurnJob, TurnResult
from animegamer_rt.serving.worker.loop import Worker
from animegamer_rt.state.game import CharacterState, TurnRecord

TIMEOUT_S = 60
"""How long to wait for what must happen; only a broken worker makes a test wait so long."""


class WorkerClient:
    """The server's end of the socket to a worker."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.socket.send_multipart(encode(message))

    def answers(self) -> list[Message]:
        """What is said of one job, up to its end."""
        messages: list[Message] = []
        while not messages or messages[-1].type not in ("finished", "part", "failed"):
            assert self.socket.poll(1000 * TIMEOUT_S), "the worker says nothing"
            messages.append(decode(self.socket.recv_multipart(), WORKER_LIMITS, check=False))
        return messages

    def play(self, job: Message) -> list[Message]:
        self.send(job)
        return self.answers()


class Game:
    """A game as the server keeps it: the next job, and what becomes of its result."""

    def __init__(self, seed: int = 7, window: int = 2, session: str = "s", **frames: Any) -> None:
        self.seed, self.window, self.session = seed, window, session
        self.frames = FrameOptions(**{"pixel_format": "rgb24", **frames})
        self.history: list[TurnRecord] = []
        self.shots: dict[int, bytes] = {}
        self.character = CharacterState()

    def job(self, text: str, *, id: str = "j", complete: bool = False, **fields: Any) -> Message:
        """The job of the next turn; `complete`: with the whole history and no shots. `fields` are changed ones."""
        first = 0 if complete else max(0, len(self.history) - self.window)
        shots = {} if complete else {turn: shot for turn, shot in self.shots.items() if turn > first}
        turn = TurnJob(
            text,
            self.seed,
            self.window,
            self.character,
            omitted_turns=first,
            history=tuple(self.history[first:]),
            shots=shots,
            frames=self.frames,
        )
        number = len(self.history) + 1
        fields = {**turn.to_fields(), **fields}
        return Message("job", fields, id=id, session=self.session, turn=number)

    def export(self, folder: str, seeds: list[int] | None = None, versions: tuple[int, ...] = ()) -> list[Message]:
        """A job for each turn."""
        jobs, character = list[Message](), CharacterState()
        for number, record in enumerate(self.history, 1):
            job = ExportJob(
                record.text,
                seeds[number - 1] if seeds else self.seed,
                self.window,
                character,
                history=tuple(self.history[: number - 1]),
                noise_version=versions[number - 1] if versions else VERSION,
                folder=folder,
                game_seed=self.seed,
                turns=len(self.history),
            )
            jobs.append(Message("job", job.to_fields(), id=f"e{number}", session=self.session, turn=number))
            character = character.after(record.game_state)
        return jobs

    def keep(self, text: str, messages: list[Message]) -> TurnResult:
        """Add a finished turn."""
        (message,) = [message for message in messages if message.type == "turn_result"]
        result = TurnResult.from_message(message)
        self.history.append(TurnRecord(text, result.game_state))
        self.shots |= result.shots
        self.character = result.character
        return result

    def turn(self, worker: WorkerClient, text: str) -> list[Message]:
        """Play a turn and keep it."""
        messages = worker.play(self.job(text))
        self.keep(text, messages)
        return messages


@contextlib.contextmanager
def running(pipeline: Pipeline, *jobs: Message, **options: Any) -> Iterator[WorkerClient]:
    """A worker in a thread of this process. `jobs` wait for it when it starts."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as ours, context.socket(zmq.DEALER) as theirs:
        ours.bind("inproc://worker")
        theirs.connect("inproc://worker")
        thread = threading.Thread(target=Worker(theirs, pipeline, **options).run, name="worker")
        client = WorkerClient(ours)
        client.send(*jobs)
        thread.start()
        try:
            yield client
        finally:
            client.send(Message("stop"))
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


def content(messages: list[Message]) -> list[Any]:
    """All of a turn that does not depend on the clock."""
    return [
        (message.type, message.seq, message.session, message.fields.get("shots"), *map(bytes, message.buffers))
        for message in messages
    ]


def of_type(messages: list[Message], type: str) -> list[Message]:
    return [message for message in messages if message.type == type]


def pictures(messages: list[Message]) -> np.ndarray:
    """The raw frames of a turn, [n, H, W, C]."""
    frames = []
    for message in of_type(messages, "frame"):
        fields = message.fields
        size = (fields["height"], fields["width"], fields["stride"] // fields["width"])
        frames.append(np.frombuffer(message.buffers[0], np.uint8).reshape(size))
    return np.stack(frames)
