"""Messages <-> frames, version 1 of PROTOCOL.md: the magic, one msgpack header, raw buffers.

Checks frames and header keys, but not a message's fields; message types of newer servers are decoded like any other.
The runtime has its own codec, because this package does not depend on it; both are tested with client/vectors.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from .errors import ProtocolError

Buffer = bytes | memoryview

MAGIC = b"AGRT"
MAJOR, MINOR = 1, 3

_MAX_NAME = 64
_MAX_ITEMS = 1024
"""Longest list or map in a header; msgpack allocates a list as soon as it reads its length."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest message that a receiver accepts: bytes of the header, bytes of one buffer, number of buffers."""

    header_bytes: int
    buffer_bytes: int
    buffers: int


FROM_SERVER = Limits(header_bytes=256 * 1024, buffer_bytes=64 * 2**20, buffers=1)


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Its header keys are explained in PROTOCOL.md.

    Buffers are not copied: they are the sender's memory, or a received message's, valid as long as they are referenced.
    """

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    parent: str | None = None
    session: str | None = None
    turn: int | None = None
    seq: int | None = None
    buffers: tuple[Buffer, ...] = ()


def encode(message: Message) -> list[Buffer]:
    """Encode a message as frames. Its fields are not checked; the server does that.

    Raises ProtocolError (`bad_field`) for what msgpack cannot encode: text that is not UTF-8, integers over 64 bits.
    """
    header: dict[str, Any] = {"type": message.type}
    for key in ("id", "parent", "session", "turn", "seq"):
        value = getattr(message, key)
        if value is not None:
            header[key] = value
    header["fields"] = dict(message.fields)
    try:
        packed = msgpack.packb(header)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(
            f"`{message.type}` cannot be sent; found {error}", "use UTF-8 text and 64-bit numbers", code="bad_field"
        ) from error
    return [MAGIC + bytes([MAJOR]), packed, *message.buffers]


def decode(frames: Sequence[Buffer], limits: Limits = FROM_SERVER) -> Message:
    """Decode received frames. Sizes are checked before anything is unpacked; unknown header keys are dropped.

    Raises ProtocolError, and no other error, whatever the bytes.
    """
    if len(frames) < 2:
        raise ProtocolError(f"received a message of {len(frames)} frames; expected at least 2")
    start = bytes(frames[0][: len(MAGIC) + 2])
    if len(start) != len(MAGIC) + 1 or not start.startswith(MAGIC):
        raise ProtocolError("the reply is not a message of this protocol", "check that the address is a game server's")
    if start[-1] != MAJOR:
        raise ProtocolError(
            f"the server speaks version {start[-1]}, this client speaks {MAJOR}", "update the older one", code="version"
        )
    _check_sizes(frames, limits)
    header = _header(frames[1])
    return Message(
        _name(header, "type", required=True) or "",
        _fields(header),
        _name(header, "id"),
        _name(header, "parent"),
        _name(header, "session"),
        _count(header, "turn", least=1),
        _count(header, "seq", least=0),
        tuple(frames[2:]),
    )


def _check_sizes(frames: Sequence[Buffer], limits: Limits) -> None:
    sizes = [memoryview(frame).nbytes for frame in frames]
    if sizes[1] > limits.header_bytes:
        raise ProtocolError(
            f"received a header of {sizes[1]} bytes; expected at most {limits.header_bytes}", code="too_large"
        )
    if len(frames) - 2 > limits.buffers:
        raise ProtocolError(f"received {len(frames) - 2} buffers; expected at most {limits.buffers}", code="too_large")
    if max(sizes[2:], default=0) > limits.buffer_bytes:
        raise ProtocolError(
            f"received a buffer of {max(sizes[2:])} bytes; expected at most {limits.buffer_bytes}", code="too_large"
        )


def _header(frame: Buffer) -> dict[Any, Any]:
    try:
        header = msgpack.unpackb(
            frame, raw=False, strict_map_key=True, max_array_len=_MAX_ITEMS, max_map_len=_MAX_ITEMS
        )
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the header is not msgpack: {str(error) or type(error).__name__}") from error
    if not isinstance(header, dict):
        raise ProtocolError("the header is not a map")
    return header


def _name(header: dict[Any, Any], key: str, required: bool = False) -> str | None:
    if key not in header:
        if required:
            raise ProtocolError(f"the header has no {key}", code="missing_field")
        return None
    value = header[key]
    if isinstance(value, str) and 1 <= len(value) <= _MAX_NAME:
        return value
    raise _bad(key, value, f"text of 1 to {_MAX_NAME} characters")


def _count(header: dict[Any, Any], key: str, least: int) -> int | None:
    if key not in header:
        return None
    value = header[key]
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63:
        return value
    raise _bad(key, value, f"a whole number, {least} or more")


def _fields(header: dict[Any, Any]) -> Mapping[str, Any]:
    fields = header.get("fields", {})
    if isinstance(fields, dict):
        return fields
    raise _bad("fields", fields, "a map")


def _bad(key: str, value: object, expected: str) -> ProtocolError:
    return ProtocolError(f"{key} in the header is {reprlib.repr(value)}; expected {expected}", code="bad_field")
