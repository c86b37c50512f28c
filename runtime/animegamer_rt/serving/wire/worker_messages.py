"""What the server and its worker say to each other: jobs, and the messages that answer them.

    server -> worker    job (a TurnJob, an ExportJob or a StartJob), cancel, stop, heartbeat (to see the connection)
    worker -> server    loading, ready (WorkerReady); then for a job:
                        events that go on to the client (understood; state, progress, frame, clip, numbered by `seq`),
                        shots (PredictedShots), turn_result (TurnResult), heartbeat: for the server only,
                        and at the end finished (TurnFinished, ExportFinished, GameStarted) or failed (JobFailed)

Both ends are of one installation, so these messages have no version. Names on the wire are written out in tables, so
that renaming a Python field changes no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from animegamer_rt.bundle.config import check_choice, read_record
from animegamer_rt.errors import ConfigError
from animegamer_rt.state.game import CharacterState, GameState
from animegamer_rt.state.game_fields import (
    character_from_fields,
    character_to_fields,
    game_state_from_fields,
    game_state_to_fields,
)
from animegamer_rt.state.scene import Scene

from .codec import Buffer, Message
from .fields import CODECS, PIXEL_FORMATS

JOB, CANCEL, STOP = "job", "cancel", "stop"
LOADING, READY, HEARTBEAT = "loading", "ready", "heartbeat"
TURN, EXPORT, START = "turn", "export", "start"
"""Kinds of job: the field `kind` of `job`."""

HistoryRow = tuple[str, int, int, int, int]
"""A finished turn: text, motion level, social, entertainment, stamina.

The text is the instruction; in a TurnJob it is what prompts contain, which is the scene's caption if there is one."""

Names = Mapping[str, str]
"""Name on the wire -> name of the Python field."""

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """How a client wants its frames, chosen at hello. Raises ConfigError for a value that is not one of the protocol's.

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
    def from_fields(cls, fields: Mapping[str, Any], where: str = "hello") -> FrameOptions:
        """What the fields of `hello`, or of a job, ask for; an absent one has its default."""
        return _read(cls, _FRAME_OPTIONS, fields, where)

    def to_fields(self) -> dict[str, Any]:
        """The fields of a job."""
        return _write(self, _FRAME_OPTIONS)


_FRAME_OPTIONS: Names = {
    "pixel_format": "pixel_format",
    "flip": "flip",
    "codec": "codec",
    "jpeg_quality": "jpeg_quality",
    "clip": "clip",
}


@dataclass(frozen=True, slots=True)
class TurnJob:
    """Play the turn after `history`, which is itself after `omitted_turns` turns that the model no longer sees.

    character, scene: before the turn. shot_turns: whose shots the message's buffers are, fp16 [226, D] each.
    start_text: of turn 0 of a game that starts from a picture, whose shot is then the first of them.
    """

    instruction: str
    seed: int
    history_turns: int
    character: CharacterState
    omitted_turns: int = 0
    history: tuple[HistoryRow, ...] = ()
    shot_turns: tuple[int, ...] = ()
    frames: FrameOptions = FrameOptions()
    scene: Scene | None = None
    start_text: str | None = None

    @classmethod
    def from_message(cls, message: Message) -> TurnJob:
        """The job in a message. Raises ConfigError for a field that is missing or of the wrong kind."""
        where = f"job {message.id}"
        own = _read(_TurnFields, _TURN_JOB, message.fields, where)
        return cls(
            own.instruction,
            own.seed,
            own.history_turns,
            character_from_fields(own.character),
            own.omitted_turns,
            own.history,
            own.shot_turns,
            FrameOptions.from_fields(message.fields, where),
            _scene_from_field(own.scene),
            own.start_text,
        )

    def to_fields(self) -> dict[str, Any]:
        """The fields of `job`."""
        return {
            "kind": TURN,
            "instruction": self.instruction,
            "seed": self.seed,
            "history_turns": self.history_turns,
            "first": self.omitted_turns,
            "log": [list(row) for row in self.history],
            "shots": list(self.shot_turns),
            "character": character_to_fields(self.character),
            "scene": _scene_to_field(self.scene),
            "start": self.start_text,
            **self.frames.to_fields(),
        }


@dataclass(frozen=True, slots=True)
class _TurnFields:
    """What is read of a TurnJob, each value checked for its kind."""

    instruction: str
    seed: int
    history_turns: int
    character: Mapping[str, int]
    omitted_turns: int = 0
    history: tuple[HistoryRow, ...] = ()
    shot_turns: tuple[int, ...] = ()
    scene: str | None = None
    start_text: str | None = None


_TURN_JOB: Names = {
    "instruction": "instruction",
    "seed": "seed",
    "history_turns": "history_turns",
    "first": "omitted_turns",
    "log": "history",
    "shots": "shot_turns",
    "character": "character",
    "scene": "scene",
    "start": "start_text",
}


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Render all turns of `history` into a folder, as `animegamer-rt play` would have written them.

    seeds: one a turn, as a game may have branched off one of another seed.
    start_text, start_scene: of turn 0 of a game that starts from a picture; its shot is then the message's buffer.
    """

    folder: str
    seed: int
    history_turns: int
    history: tuple[HistoryRow, ...]
    seeds: tuple[int, ...]
    start_text: str | None = None
    start_scene: str | None = None

    @classmethod
    def from_message(cls, message: Message) -> ExportJob:
        """The job in a message. Raises ConfigError for a field that is missing or of the wrong kind."""
        return _read(cls, _EXPORT_JOB, message.fields, f"job {message.id}")

    def to_fields(self) -> dict[str, Any]:
        """The fields of `job`."""
        return {"kind": EXPORT, **_write(self, _EXPORT_JOB)}


_EXPORT_JOB: Names = {
    "folder": "folder",
    "seed": "seed",
    "history_turns": "history_turns",
    "log": "history",
    "seeds": "seeds",
    "start": "start_text",
    "start_scene": "start_scene",
}


class Reply(Protocol):
    """A message of the worker that is for the server, not for the client."""

    TYPE: ClassVar[str]

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        ...

    def buffers(self) -> tuple[Buffer, ...]:
        """Its buffers."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The engines are loaded. secret: the server's, by which it knows its worker; resident_mib: None if unknown.

    fingerprint: of the bundle that the worker has opened. engines: what plays it (`Pipeline.engines`).
    """

    secret: str
    warmup_s: float
    resident_mib: float | None
    fingerprint: str
    engines: str

    @classmethod
    def from_message(cls, message: Message) -> WorkerReady:
        """The inverse of `to_fields`."""
        fields = message.fields
        return cls(
            fields["secret"],
            float(fields["warmup_s"]),
            fields["resident_mib"],
            fields["fingerprint"],
            fields["engines"],
        )

    def to_fields(self) -> dict[str, Any]:
        """The fields of `ready`."""
        return {
            "secret": self.secret,
            "warmup_s": self.warmup_s,
            "resident_mib": self.resident_mib,
            "fingerprint": self.fingerprint,
            "engines": self.engines,
        }


@dataclass(frozen=True, slots=True)
class PredictedShots:
    """Shots of earlier turns that had to be predicted again: turn -> fp16 [226, D], row-major."""

    TYPE: ClassVar[str] = "shots"
    shots: Mapping[int, bytes]

    @classmethod
    def from_message(cls, message: Message) -> PredictedShots:
        """The inverse of `to_fields` and `buffers`."""
        return cls(_shots_of(message))

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        return {"shots": list(self.shots)}

    def buffers(self) -> tuple[Buffer, ...]:
        """The shots."""
        return tuple(self.shots.values())


@dataclass(frozen=True, slots=True)
class TurnResult:
    """All that is stored of a turn; it comes once the turn is denoised, before its frames.

    character, scene: after the turn. shots: the turn's own and those that were predicted again, as in PredictedShots;
    none where no later turn will see them. engines: what made it (`Pipeline.engines`); None if that is unknown.
    """

    TYPE: ClassVar[str] = "turn_result"
    game_state: GameState
    character: CharacterState
    shots: Mapping[int, bytes]
    scene: Scene | None = None
    engines: str | None = None

    @classmethod
    def from_message(cls, message: Message) -> TurnResult:
        """The inverse of `to_fields` and `buffers`."""
        fields = message.fields
        character = character_from_fields(fields["character"])
        scene = _scene_from_field(fields.get("scene"))
        return cls(game_state_from_fields(fields), character, _shots_of(message), scene, fields.get("engines"))

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        return {
            **game_state_to_fields(self.game_state),
            "character": character_to_fields(self.character),
            "scene": _scene_to_field(self.scene),
            "shots": list(self.shots),
            "engines": self.engines,
        }

    def buffers(self) -> tuple[Buffer, ...]:
        """The shots."""
        return tuple(self.shots.values())


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """All frames of the turn have been sent. seconds: by stage (reader, predictor, denoiser, vae, total)."""

    TYPE: ClassVar[str] = "finished"
    seconds: Mapping[str, float]
    resident_mib: float | None = None

    @classmethod
    def from_message(cls, message: Message) -> TurnFinished:
        """The inverse of `to_fields`."""
        return cls(message.fields["seconds"], message.fields.get("resident_mib"))

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        return {"seconds": dict(self.seconds), "resident_mib": self.resident_mib}

    def buffers(self) -> tuple[Buffer, ...]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True)
class ExportFinished:
    """The game is in its folder. files: their names."""

    TYPE: ClassVar[str] = "finished"
    files: tuple[str, ...]

    @classmethod
    def from_message(cls, message: Message) -> ExportFinished:
        """The inverse of `to_fields`."""
        return cls(tuple(message.fields["files"]))

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        return {"files": list(self.files)}

    def buffers(self) -> tuple[Buffer, ...]:
        """None."""
        return ()


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job is over without its end. code: one of `error_codes.CODES` or an error's own; do: what helps."""

    TYPE: ClassVar[str] = "failed"
    code: str
    text: str
    do: str | None = None

    @classmethod
    def from_message(cls, message: Message) -> JobFailed:
        """The inverse of `to_fields`."""
        fields = message.fields
        return cls(str(fields["code"]), str(fields["text"]), fields.get("do"))

    def to_fields(self) -> dict[str, Any]:
        """Its fields."""
        return {"code": self.code, "text": self.text} | ({} if self.do is None else {"do": self.do})

    def buffers(self) -> tuple[Buffer, ...]:
        """None."""
        return ()


def _write(record: object, names: Names) -> dict[str, Any]:
    return {name: getattr(record, attribute) for name, attribute in names.items()}


def _read(kind: type[Record], names: Names, fields: Mapping[str, Any], where: str) -> Record:
    """Fields that the table does not name are ignored, as everywhere on the wire."""
    return read_record(kind, {attribute: fields[name] for name, attribute in names.items() if name in fields}, where)


def _scene_to_field(scene: Scene | None) -> str | None:
    return None if scene is None else scene.to_json()


def _scene_from_field(text: str | None) -> Scene | None:
    return None if text is None else Scene.from_json(text)


def _shots_of(message: Message) -> dict[int, bytes]:
    return {turn: bytes(shot) for turn, shot in zip(message.fields["shots"], message.buffers, strict=True)}
