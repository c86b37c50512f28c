"""Plays a job's turn: its events as messages, frames in the client's format, and the result.

Knows nothing of the session but what came with the job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.errors import SessionError
from animegamer_rt.events import Done, FrameReady, Progress, StatePredicted, Understood
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling.process_memory import resident_mib
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import (
    FrameOptions,
    PartFinished,
    PredictedShots,
    TurnFinished,
    TurnJob,
    TurnResult,
)
from animegamer_rt.session import Session
from animegamer_rt.stages.predictor import Prediction
from animegamer_rt.stages.prompt import HistoryTurn
from animegamer_rt.state.game import NEUTRAL, Instruction, Scene
from animegamer_rt.video import ClipWriter

from .replies import ReplyBuilder

if TYPE_CHECKING:
    from .encoders import JpegEncoder

PIECE_BYTES = 128 * 1024
"""Of a clip in one message: clients have room for a picture of the smallest bundle and its header, 256 KiB."""


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """A turn ready to play: its job, the session before it, and the prediction if it was made ahead."""

    message: Message
    job: TurnJob
    session: Session
    prediction: Prediction | None


def prepare_turn(
    pipeline: Pipeline, message: Message, heartbeat: Callable[[], None], *, ahead: bool = False
) -> PreparedTurn:
    """Read a job and restore its session.

    Earlier turns with missing shots are predicted again; heartbeat is called before each, and may raise to stop. ahead:
    also predict the turn, possibly while another one is denoised. Raises AnimeGamerError if it cannot be played.
    """
    job = TurnJob.from_message(message)
    session = _resume(pipeline, job, heartbeat)
    if message.turn != session.turns + 1:
        raise SessionError("the job is not for the next turn", found=message.turn, expected=session.turns + 1)
    prediction = pipeline.predict(session, Instruction(job.instruction)) if ahead else None
    return PreparedTurn(message, job, session, prediction)


def predict_history(
    pipeline: Pipeline, message: Message, heartbeat: Callable[[], None]
) -> Generator[Message, None, None]:
    """The replies to a PredictJob; heartbeat: as of `prepare_turn`. Raises AnimeGamerError on failure."""
    prepared, replies = prepare_turn(pipeline, message, heartbeat), ReplyBuilder(message)
    yield replies.to_server(PredictedShots(new_shots(prepared)))
    yield replies.to_server(PartFinished())


def play_turn(pipeline: Pipeline, prepared: PreparedTurn) -> Generator[Message, None, None]:
    """All replies to the job; the last is `finished`. Raises AnimeGamerError if it cannot be played.

    Shots of earlier turns that were predicted again come first, so that they are kept even if the turn fails. The
    result comes as soon as the turn is denoised: the server stores it while the vae decodes.
    """
    message, job, session = prepared.message, prepared.job, prepared.session
    predicted_again = new_shots(prepared)
    geometry, replies = pipeline.bundle.manifest.geometry, ReplyBuilder(message)
    pixel_format = job.frames.pixel_format if job.frames.codec == "raw" else "rgb24"
    frames = _FrameStream(job.frames, geometry, replies)
    clip = _ClipStream(job.frames, geometry, pixel_format, replies)
    events = pipeline.run_turn(
        session,
        Instruction(job.instruction),
        prediction=prepared.prediction,
        shown=job.shown,
        pixel_format=pixel_format,
        flip=job.frames.flip,
    )
    scene = None
    with contextlib.closing(clip):
        if predicted_again:
            yield replies.to_server(PredictedShots(predicted_again))
        for event in events:
            if isinstance(event, Understood):
                scene = event.scene
                yield replies.unnumbered("understood", _understood_fields(event))
            elif isinstance(event, StatePredicted):
                predicted = event
                yield replies.event("state", _state_fields(event))
            elif isinstance(event, Progress):
                yield replies.progress(event.step, event.steps, event.seconds_left)
                if event.step == event.steps:
                    yield replies.to_server(_result(job, predicted, scene, predicted_again, pipeline.engines))
            elif isinstance(event, FrameReady):
                yield from frames.messages(event)
                clip.add(event)
                if event.index == 0:  # stored while the rest is decoded, so that nobody waits for it
                    memory_mib = resident_mib()
            elif isinstance(event, Done):
                done = event
        yield from clip.messages()
    reader = {} if pipeline.reader is None else {"reader": done.seconds.reader}
    yield replies.to_server(TurnFinished({**reader, **done.seconds.to_fields()}, memory_mib))


def new_shots(prepared: PreparedTurn) -> dict[int, bytes]:
    """The shots that the session has now and its job did not have."""
    return _as_bytes({turn: shot for turn, shot in prepared.session.shots.items() if turn not in prepared.job.shots})


class _FrameStream:
    """The `frame` messages of a turn; none if the client wants only the clip."""

    def __init__(self, options: FrameOptions, geometry: Geometry, replies: ReplyBuilder) -> None:
        self._options, self._geometry, self._replies = options, geometry, replies
        self._jpeg: JpegEncoder | None = None
        if options.codec == "jpeg":
            from . import encoders  # loads FFmpeg, which raw frames do not need

            self._jpeg = encoders.JpegEncoder(geometry.height, geometry.width, options.jpeg_quality)

    def messages(self, event: FrameReady) -> Iterator[Message]:
        if self._options.codec == "mp4":
            return
        height, width, channels = event.frame.shape
        fields = {
            "index": event.index,
            "count": self._geometry.frames,
            "dtype": "uint8",
            "width": width,
            "height": height,
            "stride": 0 if self._jpeg else width * channels,
            "pixel_format": "rgb24" if self._jpeg else self._options.pixel_format,
            "codec": self._options.codec,
        }
        # A contiguous frame is sent from its own memory, without a copy.
        content = self._jpeg.encode(event.frame) if self._jpeg else np.ascontiguousarray(event.frame).data.cast("B")
        yield self._replies.event("frame", fields, content)


class _ClipStream:
    """The `clip` messages of a turn, after its frames."""

    def __init__(self, options: FrameOptions, geometry: Geometry, pixel_format: str, replies: ReplyBuilder) -> None:
        self._replies, self._writer = replies, None
        if options.clip or options.codec == "mp4":
            self._writer = ClipWriter(geometry.height, geometry.width, geometry.fps, pixel_format=pixel_format)

    def add(self, event: FrameReady) -> None:
        if self._writer is not None:
            self._writer.add(event.frame)

    def messages(self) -> Iterator[Message]:
        if self._writer is None:
            return
        content = self._writer.finish()
        for index, first in enumerate(range(0, len(content), PIECE_BYTES)):
            last = first + PIECE_BYTES >= len(content)
            fields = {"index": index, "last": last, "codec": "mp4"}
            yield self._replies.event("clip", fields, content[first : first + PIECE_BYTES])

    def close(self) -> None:
        """End the encoder, even of an abandoned turn."""
        if self._writer is not None:
            self._writer.close()


def _resume(pipeline: Pipeline, job: TurnJob, heartbeat: Callable[[], None]) -> Session:
    def predict(history: Sequence[HistoryTurn], instruction: Instruction) -> Prediction:
        heartbeat()
        return pipeline.predictor.predict(history, instruction)

    geometry = pipeline.bundle.manifest.geometry
    shape = (geometry.shot_tokens, geometry.shot_width)
    shots = {turn: read_shot(shot, shape) for turn, shot in job.shots.items()}
    start = None if job.start_text is None else HistoryTurn(job.start_text, NEUTRAL, shots.pop(0))
    session = Session.resume(
        pipeline.bundle,
        job.seed,
        job.history_turns,
        job.history,
        job.character,
        shots,
        predict,
        omitted_turns=job.omitted_turns,
        scene=job.scene,
        initial_turn=start,
    )
    session.noise_version = job.noise_version
    return session


def read_shot(shot: bytes, shape: tuple[int, int]) -> npt.NDArray[np.float16]:
    """Decode a shot, fp16 [226, D]. Raises SessionError if it has another size."""
    expected = 2 * shape[0] * shape[1]
    if len(shot) != expected:
        raise SessionError("a shot has the wrong size", found=f"{len(shot)} bytes", expected=f"{expected} bytes")
    return np.frombuffer(shot, "<f2").reshape(shape).astype(np.float16)


def _result(
    job: TurnJob, event: StatePredicted, scene: Scene | None, predicted_again: Mapping[int, bytes], engines: str
) -> TurnResult:
    """Without a history window no later turn sees a shot, so none is stored."""
    shots = {**predicted_again, **_as_bytes({event.turn: event.shot})} if job.history_turns else {}
    return TurnResult(event.game_state, event.character, shots, scene, engines)


def _as_bytes(shots: Mapping[int, npt.NDArray[Any]]) -> dict[int, bytes]:
    return {turn: shot.astype("<f2").tobytes() for turn, shot in shots.items()}


def _understood_fields(event: Understood) -> dict[str, Any]:
    return {
        **event.scene.to_fields(),
        "unknown": list(event.unknown),
        "answer": [one.to_fields() for one in event.answer],
        "text": event.text,
        **({} if event.notice is None else {"notice": event.notice}),
    }


def _state_fields(event: StatePredicted) -> dict[str, Any]:
    return {
        **asdict(event.game_state),
        "character": asdict(event.character),
        "shown": asdict(event.shown),
        "motion_scope": float(event.motion_scope),
    }
