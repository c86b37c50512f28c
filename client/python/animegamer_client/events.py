"""What a turn says while it runs: typed events, each with session, turn and sequence number.

Knows messages and what they mean; nothing of sockets, of resuming, or of what a game does with an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .codec import Message
from .errors import ProtocolError
from .fields import flag, integer, nested, number, text

Pixels = npt.NDArray[np.uint8]
"""A picture, uint8 [height, width, channels], top row first unless `flip` was asked for."""

CHANNELS: Mapping[str, int] = {"rgb24": 3, "rgba32": 4, "bgra32": 4}
"""Channels of each pixel format."""


@dataclass(frozen=True, slots=True)
class Character:
    """The character's three values, 0..100."""

    stamina: int
    social: int
    entertainment: int

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> Character:
        """From the map that messages carry. Raises ProtocolError."""
        return cls(*(integer(fields, name) for name in ("stamina", "social", "entertainment")))


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where a turn's time went, in seconds; `queue` is the wait before it, `total` the whole turn without that."""

    queue: float
    predictor: float
    denoiser: float
    vae: float
    total: float


@dataclass(frozen=True, slots=True)
class Event:
    """`session` id; `turn` from 1; `seq` from 0 within the turn, without gaps."""

    session: str
    turn: int
    seq: int


@dataclass(frozen=True, slots=True)
class Accepted(Event):
    """The server has the turn. `place` 0 runs now; `estimate_s` to its end; `replayed`: it was played before."""

    turn_id: str
    place: int
    estimate_s: float
    instruction: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class State(Event):
    """What happens in the turn, before the first picture: strengths -5..5.

    character: the running values after this turn; shown: the same with the quiet-turn rule, for display.
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
    """After denoising step `step` of `steps`; `seconds_left` until the last of them."""

    step: int
    steps: int
    seconds_left: float


@dataclass(frozen=True, slots=True, eq=False)
class _Picture(Event):
    """A picture as it came: `data` is the received buffer itself, read-only, valid for as long as it is held."""

    width: int
    height: int
    stride: int
    pixel_format: str
    codec: str
    data: memoryview

    @property
    def pixels(self) -> Pixels:
        """uint8 [height, width, channels], a read-only view of `data`: no copy. Only for codec raw (ValueError)."""
        if self.codec != "raw":
            raise ValueError(f"a {self.codec} picture has no pixels yet: decode .data, or ask for codec='raw'")
        channels = CHANNELS[self.pixel_format]
        shape, strides = (self.height, self.width, channels), (self.stride, channels, 1)
        return np.ndarray(shape, np.uint8, self.data, 0, strides)


@dataclass(frozen=True, slots=True, eq=False)
class Frame(_Picture):
    """Video frame `index` of `count`, as soon as it is decoded; `data` is pixels (codec raw) or a JPEG file."""

    index: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Preview(_Picture):
    """A rough picture after step `step`. Reserved: only servers with the capability `preview` send it."""

    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Clip(Event):
    """Piece `index` of the turn's mp4: written one after the other, up to the `last`, they are the file."""

    index: int
    last: bool
    codec: str
    data: memoryview


@dataclass(frozen=True, slots=True)
class Restarting(Event):
    """The engine died and comes back in `retry_in_s`; the turn goes on by itself. `seq` is that of the event before."""

    attempt: int
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class Done(Event):
    """The turn is part of the game now, which has `turns` turns."""

    seconds: Seconds
    turns: int


def read_event(message: Message, seq: int) -> Event | None:
    """The event that a message of a turn is; None for a type this client does not know. Raises ProtocolError."""
    if message.type not in _READERS:
        return None
    if message.session is None or message.turn is None:
        raise ProtocolError(f"a {message.type} without session or turn came", code="missing_field")
    return _READERS[message.type](message, message.session, message.turn, seq)


def _accepted(message: Message, session: str, turn: int, seq: int) -> Event:
    get = message.fields
    place, estimate = integer(get, "place"), number(get, "estimate_s")
    return Accepted(
        session, turn, seq, text(get, "turn_id"), place, estimate, text(get, "instruction"), flag(get, "replayed")
    )


def _state(message: Message, session: str, turn: int, seq: int) -> Event:
    get = message.fields
    level, social, entertainment, stamina = (
        integer(get, name) for name in ("motion_level", "social", "entertainment", "stamina")
    )
    character, shown = (Character.read(nested(get, name)) for name in ("character", "shown"))
    scope = number(get, "motion_scope")
    return State(session, turn, seq, level, social, entertainment, stamina, character, shown, scope)


def _progress(message: Message, session: str, turn: int, seq: int) -> Event:
    get = message.fields
    return Progress(session, turn, seq, integer(get, "step"), integer(get, "steps"), number(get, "seconds_left"))


def _frame(message: Message, session: str, turn: int, seq: int) -> Event:
    index, count = integer(message.fields, "index"), integer(message.fields, "count")
    return Frame(session, turn, seq, *_picture(message), index, count)


def _preview(message: Message, session: str, turn: int, seq: int) -> Event:
    return Preview(session, turn, seq, *_picture(message), integer(message.fields, "step"))


def _clip(message: Message, session: str, turn: int, seq: int) -> Event:
    get = message.fields
    return Clip(session, turn, seq, integer(get, "index"), flag(get, "last"), text(get, "codec"), _buffer(message))


def _restarting(message: Message, session: str, turn: int, seq: int) -> Event:
    return Restarting(session, turn, seq, integer(message.fields, "attempt"), number(message.fields, "retry_in_s"))


def _done(message: Message, session: str, turn: int, seq: int) -> Event:
    spent = nested(message.fields, "seconds")
    seconds = Seconds(*(number(spent, stage) for stage in ("queue", "predictor", "denoiser", "vae", "total")))
    return Done(session, turn, seq, seconds, integer(message.fields, "turns"))


_READERS: Mapping[str, Callable[[Message, str, int, int], Event]] = {
    "accepted": _accepted,
    "state": _state,
    "progress": _progress,
    "preview": _preview,
    "frame": _frame,
    "clip": _clip,
    "restarting": _restarting,
    "done": _done,
}


def _picture(message: Message) -> tuple[int, int, int, str, str, memoryview]:
    """Width, height, stride, pixel format, codec and buffer of a picture, checked against each other."""
    get, data = message.fields, _buffer(message)
    width, height, stride = (integer(get, name) for name in ("width", "height", "stride"))
    pixel_format, codec = text(get, "pixel_format"), text(get, "codec")
    if codec == "raw":
        row = width * CHANNELS.get(pixel_format, 0)
        if not (0 < row <= stride and height > 0 and len(data) >= (height - 1) * stride + row):
            raise ProtocolError(
                f"{len(data)} bytes came for a {pixel_format} picture of {width} x {height}, stride {stride}",
                code="bad_field",
            )
    return width, height, stride, pixel_format, codec, data


def _buffer(message: Message) -> memoryview:
    if len(message.buffers) != 1:
        raise ProtocolError(f"{message.type} came with {len(message.buffers)} buffers instead of one", code="bad_field")
    return memoryview(message.buffers[0]).toreadonly()
