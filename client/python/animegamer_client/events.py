"""The events of a turn, typed, and how to read them from messages. Knows no sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .codec import Message
from .errors import ProtocolError
from .fields import flag, integer, nested, number, several, text, words

Pixels = npt.NDArray[np.uint8]
"""A picture, uint8 [height, width, channels], top row first; bottom row first with the client's option `flip`."""

CHANNELS: Mapping[str, int] = {"rgb24": 3, "rgba32": 4, "bgra32": 4}
"""Channels of each pixel format."""


@dataclass(frozen=True, slots=True)
class Character:
    """The character's three values, 0..100; all are 50 when a game starts."""

    stamina: int
    social: int
    entertainment: int

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> Character:
        """Read the map of the three values. Raises ProtocolError."""
        return cls(**{name: integer(fields, name) for name in VALUES})


VALUES = ("stamina", "social", "entertainment")
"""The names of the character's values."""
STRENGTHS = ("motion_level", *VALUES)
"""The names of a state's strengths."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long a turn took, in seconds: in each model, and `total`, without the time in the `queue` before it."""

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
    """Somebody who is shown: name and clothes, in the words of `welcome.bundle`."""

    name: str
    clothes: str


@dataclass(frozen=True, slots=True)
class Understood(Event):
    """How the instruction was understood; before `State`, of bundles that read everyday words.

    people: one or two, the first named first. motion, place, hour (day or night), position (left, centre, right): words
    of the bundle. level: of motion, 1..5. caption: the same in the form that the model is given.
    unknown: words that ask for what cannot be drawn. text: all of it in one line for a person. notice: what was not
    understood, for a person; None if all was. seq: that of the event before.
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
    notice: str | None


@dataclass(frozen=True, slots=True)
class State(Event):
    """What the turn does to the game; it comes before the first picture.

    motion_level: how much the pictures move, -5..5; normally 1 (little) to 5. social, entertainment, stamina: -5..5;
    each changes the character's value by five times as much.
    character: the values after this turn. shown: the values to display; social and entertainment are 5 lower than in
    `character` in a turn that does not change them. motion_scope: mean optical flow, pixels a frame.
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
class _Picture(Event):
    """A picture. data: the received buffer, read-only, not copied, valid for as long as it is held.

    width, height: in pixels. stride: bytes from one row to the next; 0 for a JPEG.
    """

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
            raise ValueError(f"this picture is encoded as {self.codec}; decode .data, or ask for codec='raw'")
        channels = CHANNELS[self.pixel_format]
        shape, strides = (self.height, self.width, channels), (self.stride, channels, 1)
        return np.ndarray(shape, np.uint8, self.data, 0, strides)


@dataclass(frozen=True, slots=True, eq=False)
class Frame(_Picture):
    """Frame `index` of `count`, from 0, sent as soon as it is decoded. data: pixels (codec raw) or a JPEG file."""

    index: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Preview(_Picture):
    """A rough picture after denoise step `step`. Reserved: no server of protocol 1.0 sends it."""

    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Clip(Event):
    """Piece `index` of the turn's mp4, from 0. The data of all pieces in order, up to `last`, is the file."""

    index: int
    last: bool
    codec: str
    data: memoryview


@dataclass(frozen=True, slots=True)
class Restarting(Event):
    """The server's worker died and is started again in `retry_in_s` seconds; the turn then continues by itself.

    attempt: restarts for this turn so far. seq: that of the event before.
    """

    attempt: int
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class Done(Event):
    """The turn is finished and saved; the game now has `turns` turns. The last event of a turn."""

    seconds: Seconds
    turns: int


def read_event(message: Message, seq: int) -> Event | None:
    """The event in a message; None if this client does not know its type. Raises ProtocolError."""
    if message.type not in _READERS:
        return None
    if message.session is None or message.turn is None:
        raise ProtocolError(f"received {message.type} without session or turn", code="missing_field")
    return _READERS[message.type](message, message.session, message.turn, seq)


def _accepted(message: Message, session: str, turn: int, seq: int) -> Event:
    fields = message.fields
    place, estimate = integer(fields, "place"), number(fields, "estimate_s")
    return Accepted(
        session,
        turn,
        seq,
        text(fields, "turn_id"),
        place,
        estimate,
        text(fields, "instruction"),
        flag(fields, "replayed"),
    )


def _understood(message: Message, session: str, turn: int, seq: int) -> Event:
    fields = message.fields
    people = (Person(text(person, "name"), text(person, "clothes")) for person in several(fields, "people"))
    return Understood(
        session,
        turn,
        seq,
        tuple(people),
        text(fields, "motion"),
        integer(fields, "level"),
        text(fields, "place"),
        text(fields, "hour"),
        text(fields, "position"),
        text(fields, "caption"),
        words(fields, "unknown"),
        text(fields, "text"),
        text(fields, "notice") if "notice" in fields else None,
    )


def _state(message: Message, session: str, turn: int, seq: int) -> Event:
    fields = message.fields
    character, shown = (Character.read(nested(fields, name)) for name in ("character", "shown"))
    strengths = {name: integer(fields, name) for name in STRENGTHS}
    scope = number(fields, "motion_scope")
    return State(session, turn, seq, character=character, shown=shown, motion_scope=scope, **strengths)


def _progress(message: Message, session: str, turn: int, seq: int) -> Event:
    fields = message.fields
    return Progress(
        session, turn, seq, integer(fields, "step"), integer(fields, "steps"), number(fields, "seconds_left")
    )


def _frame(message: Message, session: str, turn: int, seq: int) -> Event:
    index, count = integer(message.fields, "index"), integer(message.fields, "count")
    return Frame(session, turn, seq, *_picture(message), index, count)


def _preview(message: Message, session: str, turn: int, seq: int) -> Event:
    return Preview(session, turn, seq, *_picture(message), integer(message.fields, "step"))


def _clip(message: Message, session: str, turn: int, seq: int) -> Event:
    fields = message.fields
    return Clip(
        session, turn, seq, integer(fields, "index"), flag(fields, "last"), text(fields, "codec"), _buffer(message)
    )


def _restarting(message: Message, session: str, turn: int, seq: int) -> Event:
    return Restarting(session, turn, seq, integer(message.fields, "attempt"), number(message.fields, "retry_in_s"))


def _done(message: Message, session: str, turn: int, seq: int) -> Event:
    spent = nested(message.fields, "seconds")
    seconds = Seconds(*(number(spent, stage) for stage in ("queue", "predictor", "denoiser", "vae", "total")))
    return Done(session, turn, seq, seconds, integer(message.fields, "turns"))


_READERS: Mapping[str, Callable[[Message, str, int, int], Event]] = {
    "accepted": _accepted,
    "understood": _understood,
    "state": _state,
    "progress": _progress,
    "preview": _preview,
    "frame": _frame,
    "clip": _clip,
    "restarting": _restarting,
    "done": _done,
}


def _picture(message: Message) -> tuple[int, int, int, str, str, memoryview]:
    """Width, height, stride, pixel format, codec and buffer of a picture. Raises ProtocolError if they disagree."""
    fields, data = message.fields, _buffer(message)
    width, height, stride = (integer(fields, name) for name in ("width", "height", "stride"))
    pixel_format, codec = text(fields, "pixel_format"), text(fields, "codec")
    if codec == "raw":
        row = width * CHANNELS.get(pixel_format, 0)
        if not (0 < row <= stride and height > 0 and len(data) >= (height - 1) * stride + row):
            raise ProtocolError(
                f"received {len(data)} bytes for a {pixel_format} picture of {width} x {height}, stride {stride}",
                code="bad_field",
            )
    return width, height, stride, pixel_format, codec, data


def _buffer(message: Message) -> memoryview:
    if len(message.buffers) != 1:
        raise ProtocolError(
            f"received {message.type} with {len(message.buffers)} buffers; expected 1", code="bad_field"
        )
    return memoryview(message.buffers[0]).toreadonly()
