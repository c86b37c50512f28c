"""Jobs as they arrive, read into records, and the messages that answer them.

Knows what the front process and its worker say to each other; nothing of sockets nor of how a job is done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from animegamer_rt.backends.interface import PIXEL_FORMATS
from animegamer_rt.bundle.config import check_choice, read_record
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.wire import CODECS, Buffer, Message
from animegamer_rt.state.game import CharacterState

Row = tuple[str, int, int, int, int]
"""A finished turn: text, motion level, social, entertainment, stamina."""

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class TurnJob:
    """Play the turn after `log`, itself after `first` turns that were left out; `shots` numbers the job's buffers.

    character: the values before the turn. pixel_format is of raw frames (others are made from rgb24); flip is of every
    codec: a client that asks for it gets its pictures and its clip bottom row first.
    """

    instruction: str
    seed: int
    history_turns: int
    character: CharacterState
    first: int = 0
    log: tuple[Row, ...] = ()
    shots: tuple[int, ...] = ()
    pixel_format: str = "rgb24"
    flip: bool = False
    codec: str = "raw"
    jpeg_quality: int = 90
    clip: bool = False

    def __post_init__(self) -> None:
        check_choice(self.pixel_format, tuple(PIXEL_FORMATS), "pixel_format")
        check_choice(self.codec, CODECS, "codec")
        if not 1 <= self.jpeg_quality <= 100:
            raise ConfigError("out of range", where="jpeg_quality", found=self.jpeg_quality, expected="1 to 100")


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Render all turns of `log` into a folder, as `animegamer-rt play` would have written them.

    seeds: one a turn, as a game may have branched off one of another seed.
    """

    folder: str
    seed: int
    history_turns: int
    log: tuple[Row, ...]
    seeds: tuple[int, ...]


def read_job(kind: type[Record], message: Message) -> Record:
    """The job as a record. Fields that it does not know are ignored, as everywhere on the wire; ConfigError for others
    that are missing or of the wrong kind.
    """
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    fields = {name: value for name, value in message.fields.items() if name in known}
    return read_record(kind, fields, f"job {message.id}")


class ReplyBuilder:
    """Makes the messages that answer one job: its session, turn and id on each, and numbers from 1 on its events."""

    def __init__(self, job: Message) -> None:
        self._job, self._numbers = job, count(1)

    def event(self, kind: str, fields: Mapping[str, Any], *buffers: Buffer) -> Message:
        """A message that goes on to the client."""
        return self._make(kind, fields, buffers, next(self._numbers))

    def progress(self, step: int, steps: int, seconds_left: float) -> Message:
        """The event that says how far the job is."""
        return self.event("progress", {"step": step, "steps": steps, "seconds_left": seconds_left})

    def note(self, kind: str, fields: Mapping[str, Any], *buffers: Buffer) -> Message:
        """A message for the front process only."""
        return self._make(kind, fields, buffers, None)

    def _make(self, kind: str, fields: Mapping[str, Any], buffers: tuple[Buffer, ...], seq: int | None) -> Message:
        job = self._job
        return Message(kind, fields, parent=job.id, session=job.session, turn=job.turn, seq=seq, buffers=buffers)
