"""The events of a turn, typed, and how to read them from messages. Knows no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from .codec import Message
from .errors import ProtocolError
from .fields import read

Pixels = npt.NDArray[np.uint8]
"""A picture, uint8 [height, width, channels], top row first; with the client's option `flip`, bottom row first."""

CHANNELS: Mapping[str, int] = {"rgb24": 3, "rgba32": 4, "bgra32": 4}
"""Channels of each pixel format."""


@dataclass(frozen=True, slots=True)
class Character:
    """The character's three values, 0..100; all are 50 when a game starts."""

    stamina: int
    social: int
    entertainment: int


VALUES = tuple(field.name for field in fields(Character))
"""The names of the character's values."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long a turn took, in seconds: in each model, and `total`, without the time in the `queue`."""

    queue: float
    predictor: float
    denoiser: float
    vae: float
    total: float


@dataclass(frozen=True, slots=True)
class Event:
    """One event. session: its id. turn: number in the game, from 1. seq: number in the turn, from 0, without gaps."""

    session: str
    turn: int
    seq: int


@dataclass(frozen=True, slots=True)
class Accepted(Event):
    """The server has accepted the turn.

    place: turns before it in the queue; 0: it runs now. estimate_s: seconds until `Done`.
    instruction: as it is played, after normalisation. replayed: True if the turn was finished before.
    """

    turn_id: str
    place: int
    estimate_s: float
    instruction: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Person:
    """A person in the scene: name and clothes, in the words of `welcome.bundle`."""

    name: str
    clothes: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing to tell the player: a code of PROTOCOL.md's section Answers and its fields; others are empty."""

    code: str
    people: tuple[str, ...] = ()
    value: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Understood(Event):
    """How the instruction was understood. Comes before `State`, from bundles that read everyday words.

    people: one or two, the first named first. motion, place, hour (day or night), position (left, centre, right): words
    of the bundle. level: of motion, 1..5. caption: the same in the format for the model.
    unknown: words for things that cannot be drawn. text: what changes, in one line for a person. notice: what was not
    understood, for a person; None if everything was. answer: both in codes, for another language. seq: that of the
    previous event.
    """

    people: tuple[Person, ...]
    motion: str
    level: int
    place: str
    hour: str
    position: str
    caption: str
    unknown: tuple[str, ...]
    text: str
    notice: str | None = None
    answer: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class State(Event):
    """The turn's effect on the game; comes before the first picture.

    motion_level: how much the pictures move, -5..5; normally 1 (little) to 5. social, entertainment, stamina: -5..5;
    each changes the character's value by five times as much.
    character: the values after this turn. shown: the values to display; social and entertainment are 5 lower than in
    `character` in a turn that does not change them. motion_scope: mean optical flow, pixels per frame.
    """

    motion_level: int
    social: int
    entertainment: int
    stamina: int
    character: Character
    shown: Character
    motion_scope: float


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """Denoise step `step` of `steps` is done, from 1. seconds_left: estimate until the last step."""

    step: int
    steps: int
    seconds_left: float


@dataclass(frozen=True, slots=True, eq=False)
class Frame(Event):
    """Frame `index` of `count`, from 0, sent as soon as it is decoded.

    width, height: in pixels. stride: bytes from one row to the next; 0 for a JPEG.
    data: pixels (codec raw) or a JPEG file: the received buffer, read-only, not copied, valid as long as referenced.
    """

    index: int
    count: int
    width: int
    height: int
    stride: int
    pixel_format: str
    codec: str
    data: memoryview

    @property
    def pixels(self) -> Pixels:
        """uint8 [height, width, channels]: a read-only view of `data`, not a copy; 3 channels for rgb24, else 4.

        Raises ValueError if the codec is not raw.
        """
        if self.codec != "raw":
            raise ValueError(f"this picture is encoded as {self.codec}; decode .data, or use codec='raw'")
        channels = CHANNELS[self.pixel_format]
        shape, strides = (self.height, self.width, channels), (self.stride, channels, 1)
        return np.ndarray(shape, np.uint8, self.data, 0, strides)


@dataclass(frozen=True, slots=True, eq=False)
class Clip(Event):
    """Piece `index` of the turn's mp4, from 0. The data of all pieces in order, up to `last`, is the file."""

    index: int
    last: bool
    codec: str
    data: memoryview


@dataclass(frozen=True, slots=True)
class Restarting(Event):
    """The server's worker died and restarts in `retry_in_s` seconds; the turn then continues by itself.

    attempt: restarts for this turn so far. seq: that of the previous event.
    """

    attempt: int
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class Done(Event):
    """The turn is finished and saved; the game now has `turns` turns. The last event of a turn."""

    seconds: Seconds
    turns: int


KINDS: Mapping[str, type[Event]] = {
    "accepted": Accepted,
    "understood": Understood,
    "state": State,
    "progress": Progress,
    "frame": Frame,
    "clip": Clip,
    "restarting": Restarting,
    "done": Done,
}
"""Message type -> its event, whose fields have the same names."""


def read_event(message: Message, seq: int) -> Event | None:
    """The event in a message; None for an unknown type. Raises ProtocolError."""
    kind = KINDS.get(message.type)
    if kind is None:
        return None
    if message.session is None or message.turn is None:
        raise ProtocolError(f"received {message.type} without session or turn", code="missing_field")
    given = {"session": message.session, "turn": message.turn, "seq": seq}
    if kind not in (Frame, Clip):
        return read(kind, message.fields, **given)
    event = read(kind, message.fields, **given, data=_buffer(message))
    if isinstance(event, Frame):
        _check_size(event)
    return event


def _check_size(frame: Frame) -> None:
    row = frame.width * CHANNELS.get(frame.pixel_format, 0)
    if frame.codec == "raw" and not (
        0 < row <= frame.stride and frame.height > 0 and len(frame.data) >= (frame.height - 1) * frame.stride + row
    ):
        size = f"{frame.width} x {frame.height}, stride {frame.stride}"
        raise ProtocolError(
            f"received {len(frame.data)} bytes for a {frame.pixel_format} picture of {size}", code="bad_field"
        )


def _buffer(message: Message) -> memoryview:
    if len(message.buffers) != 1:
        raise ProtocolError(
            f"received {message.type} with {len(message.buffers)} buffers; expected 1", code="bad_field"
        )
    return memoryview(message.buffers[0]).toreadonly()
