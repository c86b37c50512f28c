"""Messages between the server and its worker: jobs and the replies to them.

    server -> worker    job (PredictJob, TurnJob, ExportJob, StartJob), cancel, stop, heartbeat (tests the connection)
    worker -> server    loading, ready (WorkerReady); then for a job:
                        events for the client (understood; state, progress, frame, clip, numbered by `seq`),
                        shots (PredictedShots), turn_result (TurnResult), heartbeat: only for the server,
                        and at the end finished (TurnFinished, ExportFinished, GameStarted), part (PartFinished) or
                        failed (JobFailed)

Both ends are from one installation, so these messages have no version. A message's fields are those of its dataclass;
absent ones have their default. Shots and pictures are fields too; only a client's frames are buffers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

from animegamer_rt.bundle.config import check_choice, read_record, write_record
from animegamer_rt.errors import ConfigError
from animegamer_rt.noise import VERSION
from animegamer_rt.state.game import CharacterState, GameState, Scene, TurnRecord

from .codec import Message
from .schema import CODECS, PIXEL_FORMATS

JOB, CANCEL, STOP = "job", "cancel", "stop"
LOADING, READY, HEARTBEAT = "loading", "ready", "heartbeat"
TURN, PREDICT, EXPORT, START = "turn", "predict", "export", "start"
"""Kinds of job: the field `kind` of `job`."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """The frame format that a client chose at hello. Raises ConfigError for a value outside the protocol.

    pixel_format: of raw frames; others are made from rgb24. flip: bottom row first, in frames and in the clip.
    clip: also send the mp4, after the frames.
    """

    pixel_format: str = "rgba32"
    flip: bool = False
    codec: str = "raw"
    jpeg_quality: int = 90
    clip: bool = False

    def __post_init__(self) -> None:
        check_choice(self.pixel_format, PIXEL_FORMATS, "pixel_format")
        check_choice(self.codec, CODECS, "codec")
        if not 1 <= self.jpeg_quality <= 100:
            raise ConfigError("out of range", where="jpeg_quality", found=self.jpeg_quality, expected="1 to 100")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> FrameOptions:
        """Read the fields of `hello`; absent ones have their default."""
        return _read(cls, fields, "hello")


class WorkerMessage:
    """Converts a dataclass's fields to a message's, and back. KIND: of a job."""

    __slots__ = ()
    KIND: ClassVar[str | None] = None

    @classmethod
    def from_message(cls: type[T], message: Message) -> T:
        """The inverse of `to_fields`. Raises ConfigError for a missing field or a wrong type."""
        return _read(cls, message.fields, f"{message.type} {message.id or message.parent}")

    def to_fields(self) -> dict[str, Any]:
        """Its fields. None is left out: an absent field reads as None."""
        fields = {"kind": self.KIND, **write_record(self)}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TurnJob(WorkerMessage):
    """Play the turn after `history`, which follows `omitted_turns` turns that the model no longer sees.

    history: each turn's text as prompts contain it. character, scene: before the turn.
    shots: turn -> fp16 [226, D], row-major, of the history's turns up to one; those of later ones are predicted again.
    Of turn 0 too if the game starts from a picture.
    start_text: of that turn 0.
    shown: the scene of a turn that is replayed. noise_version: of the turn's noise.
    """

    KIND = TURN
    instruction: str
    seed: int
    history_turns: int
    character: CharacterState
    omitted_turns: int = 0
    history: tuple[TurnRecord, ...] = ()
    shots: Mapping[int, bytes] = field(default_factory=dict)
    frames: FrameOptions = FrameOptions()
    scene: Scene | None = None
    start_text: str | None = None
    shown: Scene | None = None
    noise_version: int = VERSION


@dataclass(frozen=True, slots=True)
class PredictJob(TurnJob):
    """Only predict again what the turn lacks: the answer is PredictedShots."""

    KIND = PREDICT


@dataclass(frozen=True, slots=True)
class ExportJob(TurnJob):
    """Render one of a game's `turns` turns into a folder, which has the earlier ones, as `animegamer-rt play` does.

    game_seed: of the game's next turn; a turn may have another, as the game may have branched off.
    """

    KIND = EXPORT
    folder: str = ""
    game_seed: int = 0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class StartJob(WorkerMessage):
    """Make turn 0 of a game that starts from a picture, a file's bytes. motion: as in `open`."""

    KIND = START
    motion: str
    history_turns: int
    picture: bytes


@dataclass(frozen=True, slots=True)
class WorkerReady(WorkerMessage):
    """The engines are loaded. secret: the server's, which identifies its worker.

    fingerprint: of the bundle that the worker has opened. steps: `Bundle.steps_hash` of its plan. engines: their
    identity (`Pipeline.engines`).
    """

    secret: str
    warmup_s: float
    resident_mib: float
    fingerprint: str
    steps: str
    engines: str


@dataclass(frozen=True, slots=True)
class PredictedShots(WorkerMessage):
    """Shots of earlier turns that had to be predicted again: turn -> fp16 [226, D], row-major."""

    TYPE: ClassVar[str] = "shots"
    shots: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class TurnResult(WorkerMessage):
    """Everything that is stored of a turn; sent once the turn is denoised, before its frames.

    character, scene: after the turn. shots: the turn's own and those predicted again, as in PredictedShots; none if no
    later turn will use them. engines: their identity (`Pipeline.engines`); None if unknown.
    """

    TYPE: ClassVar[str] = "turn_result"
    game_state: GameState
    character: CharacterState
    shots: Mapping[int, bytes]
    scene: Scene | None = None
    engines: str | None = None


@dataclass(frozen=True, slots=True)
class TurnFinished(WorkerMessage):
    """All frames of the turn have been sent. seconds: by stage (reader, predictor, denoiser, vae, total)."""

    TYPE: ClassVar[str] = "finished"
    seconds: Mapping[str, float]
    resident_mib: float | None = None


@dataclass(frozen=True, slots=True)
class PartFinished(WorkerMessage):
    """A part of the job is done: predicted turns, or one turn of an export. The server sends the next part later."""

    TYPE: ClassVar[str] = "part"


@dataclass(frozen=True, slots=True)
class ExportFinished(WorkerMessage):
    """The game has been written. files: the names of its files."""

    TYPE: ClassVar[str] = "finished"
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GameStarted(WorkerMessage):
    """Turn 0: its text in prompts, its shot (fp16 [226, D]), and the picture's scene with a line that describes it."""

    TYPE: ClassVar[str] = "finished"
    text: str
    shot: bytes
    scene: Scene | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class JobFailed(WorkerMessage):
    """The job failed. code: one of `CODES` or an error's own; do: advice; answer: codes with fields for the player."""

    TYPE: ClassVar[str] = "failed"
    code: str
    text: str
    do: str | None = None
    answer: tuple[Mapping[str, Any], ...] = ()


Reply = PredictedShots | TurnResult | PartFinished | TurnFinished | ExportFinished | GameStarted | JobFailed
"""A message from the worker to the server that does not concern the client."""


def _read(kind: type[T], fields: Mapping[str, Any], where: str) -> T:
    """Unknown fields are ignored, as everywhere on the wire."""
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    return read_record(kind, {name: fields[name] for name in names if name in fields}, where)
