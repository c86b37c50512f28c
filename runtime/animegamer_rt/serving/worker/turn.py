"""Plays the turn of a job: its events as messages, pictures in the form the client asked for, and what to keep of it.

Knows the pipeline and what the messages say; nothing of sockets. All that it knows of the session came with the job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.errors import SessionError
from animegamer_rt.events import Done, FrameReady, Progress, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire import Buffer, Message
from animegamer_rt.session import Session, TurnRecord
from animegamer_rt.stages.predictor import Prediction
from animegamer_rt.stages.prompt import HistoryTurn
from animegamer_rt.state.game import GameState
from animegamer_rt.state.instruction import Instruction

from .encoders import ClipEncoder, Frame, JpegEncoder
from .memory import resident_mib
from .messages import ReplyBuilder, TurnJob, read_job


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """A turn that can be played: the message of its job, the game before it, the prediction if it was made ahead."""

    message: Message
    job: TurnJob
    session: Session
    prediction: Prediction | None


def prepare_turn(
    pipeline: Pipeline, message: Message, alive: Callable[[], None], *, ahead: bool = False
) -> PreparedTurn:
    """Reads a job. `ahead`: also predicts its turn, which may be done while another one is denoised.

    `alive` is called before each turn that is predicted again, while there is nothing to say; it may raise to stop.
    Raises AnimeGamerError when the turn cannot be played.
    """
    job = read_job(TurnJob, message)
    session = _resume(pipeline, job, message.buffers, alive)
    if message.turn != session.turns + 1:
        raise SessionError("the job is not of the game's next turn", found=message.turn, expected=session.turns + 1)
    prediction = pipeline.predictor.predict(session.history, Instruction(job.instruction)) if ahead else None
    return PreparedTurn(message, job, session, prediction)


def play_turn(pipeline: Pipeline, begun: PreparedTurn) -> Generator[Message, None, None]:
    """All messages that answer the job, the last being `finished`. Raises AnimeGamerError when it cannot be played.

    `settled` comes when the turn is denoised and brings all that is to be kept of it, so that it can be written down
    while the vae decodes: with the shots that did not come with the job, this turn's and any predicted again. Those
    also come before everything else, in `shots`, so that a turn that fails has not predicted them in vain.
    """
    message, job, session = begun.message, begun.job, begun.session
    again = {number: shot for number, shot in session.shots.items() if number not in job.shots}
    geometry, answers = pipeline.bundle.manifest.geometry, ReplyBuilder(message)
    pixel_format = job.pixel_format if job.codec == "raw" else "rgb24"
    pictures, film = _FrameStream(job, geometry, answers), _ClipStream(job, geometry, pixel_format, answers)
    instruction, ahead = Instruction(job.instruction), begun.prediction
    with contextlib.closing(film):
        if again:
            yield answers.note("shots", {"shots": list(again)}, *map(_bytes, again.values()))
        for event in pipeline.run_turn(
            session, instruction, prediction=ahead, pixel_format=pixel_format, flip=job.flip
        ):
            if isinstance(event, StatePredicted):
                predicted = event
                yield answers.event("state", _state(event))
            elif isinstance(event, Progress):
                yield answers.progress(event.step, event.steps, event.seconds_left)
                if event.step == event.steps:
                    yield _settled(answers, predicted, again, job.history_turns > 0)
            elif isinstance(event, FrameReady):
                yield from pictures.messages(event)
                yield from film.messages(event)
            elif isinstance(event, Done):
                done = event
        yield from film.rest()
    yield answers.note("finished", {"seconds": asdict(done.seconds), "resident_mib": resident_mib()})


class _FrameStream:
    """The `frame` messages of a turn; none when the client asked for the clip alone."""

    def __init__(self, job: TurnJob, geometry: Geometry, answers: ReplyBuilder) -> None:
        self._job, self._geometry, self._answers = job, geometry, answers
        self._jpeg = JpegEncoder(geometry.height, geometry.width, job.jpeg_quality) if job.codec == "jpeg" else None

    def messages(self, event: FrameReady) -> Iterator[Message]:
        if self._job.codec == "mp4":
            return
        height, width, channels = event.frame.shape
        fields = {
            "index": event.index,
            "count": self._geometry.frames,
            "dtype": "uint8",
            "width": width,
            "height": height,
            "stride": 0 if self._jpeg else width * channels,
            "pixel_format": "rgb24" if self._jpeg else self._job.pixel_format,
            "codec": self._job.codec,
        }
        # A raw frame is sent from where it lies: contiguous arrays are not copied.
        content = self._jpeg.encode(event.frame) if self._jpeg else np.ascontiguousarray(event.frame).data.cast("B")
        yield self._answers.event("frame", fields, content)


class _ClipStream:
    """The `clip` messages of a turn: as the frames come if nothing else is sent, else after the last frame."""

    def __init__(self, job: TurnJob, geometry: Geometry, pixel_format: str, answers: ReplyBuilder) -> None:
        self._wanted, self._alone = job.clip or job.codec == "mp4", job.codec == "mp4"
        self._answers, self._numbers = answers, count()
        self._waiting: list[Frame] = []
        if self._wanted:
            self._encoder = ClipEncoder(geometry.height, geometry.width, geometry.fps, pixel_format)

    def messages(self, event: FrameReady) -> Iterator[Message]:
        if self._alone:
            yield from self._chunk(self._encoder.add(event.frame))
        elif self._wanted:
            self._waiting.append(event.frame)

    def rest(self) -> Iterator[Message]:
        if not self._wanted:
            return
        for frame in self._waiting:
            yield from self._chunk(self._encoder.add(frame))
        yield from self._chunk(self._encoder.finish(), last=True)

    def close(self) -> None:
        """Also of a turn that does not come to its end."""
        if self._wanted:
            self._encoder.close()

    def _chunk(self, content: bytes, last: bool = False) -> Iterator[Message]:
        if content:
            fields = {"index": next(self._numbers), "last": last, "codec": "mp4"}
            yield self._answers.event("clip", fields, content)


def _resume(pipeline: Pipeline, job: TurnJob, buffers: Sequence[Buffer], alive: Callable[[], None]) -> Session:
    def predict(history: Sequence[HistoryTurn], instruction: Instruction) -> Prediction:
        alive()
        return pipeline.predictor.predict(history, instruction)

    geometry = pipeline.bundle.manifest.geometry
    shape = (geometry.shot_tokens, geometry.shot_width)
    if len(buffers) != len(job.shots):
        raise SessionError("the job's shots do not fit its numbers", found=len(buffers), expected=len(job.shots))
    shots = {number: _shot(buffer, shape) for number, buffer in zip(job.shots, buffers, strict=True)}
    log = [TurnRecord(text, GameState(*strengths)) for text, *strengths in job.log]
    return Session.resume(
        pipeline.bundle, job.seed, job.history_turns, log, job.character, shots, predict, omitted_turns=job.first
    )


def _shot(buffer: Buffer, shape: tuple[int, int]) -> npt.NDArray[np.float16]:
    expected = 2 * shape[0] * shape[1]
    if len(buffer) != expected:
        raise SessionError("a shot is not this bundle's", found=f"{len(buffer)} bytes", expected=f"{expected} bytes")
    return np.frombuffer(buffer, "<f2").reshape(shape).astype(np.float16)


def _settled(
    answers: ReplyBuilder, event: StatePredicted, again: Mapping[int, npt.NDArray[np.float16]], wanted: bool
) -> Message:
    """`again`: shots that were predicted again, by turn; `wanted`: whether later turns will see this one's."""
    shots: dict[int, npt.NDArray[Any]] = {**again, event.turn: event.shot} if wanted else {}
    fields = {**asdict(event.game_state), "character": asdict(event.character), "shots": list(shots)}
    return answers.note("settled", fields, *map(_bytes, shots.values()))


def _bytes(shot: npt.NDArray[Any]) -> bytes:
    return shot.astype("<f2").tobytes()


def _state(event: StatePredicted) -> dict[str, Any]:
    return {
        **asdict(event.game_state),
        "character": asdict(event.character),
        "shown": asdict(event.shown),
        "motion_scope": float(event.motion_scope),
    }
