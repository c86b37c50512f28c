"""Encodes messages to frames, decodes them (the magic, one msgpack header, raw buffers) and checks their fields.

Sizes are checked before anything is unpacked, nothing is unpickled, and `decode` raises only ProtocolError, whatever
the bytes.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack

from animegamer_rt.errors import ProtocolError

from .schema import HEADER, MAX_NAME_CHARACTERS, MESSAGES, Field, Sender, allowed

Buffer = bytes | memoryview

MAGIC = b"AGRT"
MAJOR = 1

FIRST_FRAME = MAGIC + bytes([MAJOR])


def minor_version(type: str) -> int:
    """The minor version since which a server may send messages of this type."""
    return int(MESSAGES["server"][type].since.partition(".")[2])


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `buffers` are never copied: sent ones are the caller's memory, received ones the receiver's."""

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    parent: str | None = None
    session: str | None = None
    turn: int | None = None
    seq: int | None = None
    buffers: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the messages that a receiver accepts from a sender.

    items: longest list or map in a header. msgpack allocates a list as soon as it has read its length, and nests lists
    up to 1024 deep: a hostile header can make it allocate at most 8 bytes x items x 1024.
    """

    sender: Sender
    header_bytes: int
    buffer_bytes: int
    buffers: int
    items: int


CLIENT_LIMITS = Limits("client", header_bytes=64 * 1024, buffer_bytes=8 * 2**20, buffers=1, items=256)
SERVER_LIMITS = Limits("server", header_bytes=256 * 1024, buffer_bytes=64 * 2**20, buffers=1, items=1024)
WORKER_LIMITS = Limits("server", header_bytes=64 * 2**20, buffer_bytes=64 * 2**20, buffers=64, items=1_000_000)
"""Between the server and its own worker, with `check=False`: a job may carry the whole history of a long game."""

WORKER_SECRET = "ANIMEGAMER_WORKER_SECRET"
"""Environment variable with a secret by which the server recognises a worker's first messages."""
WORKER_SERVER_KEY = "ANIMEGAMER_WORKER_SERVER_KEY"
"""Environment variable with the public key (Z85) of the server's socket, for a worker on another machine."""


def encode(message: Message) -> list[Buffer]:
    """Encode a message as frames for send_multipart. Buffers are not copied and fields not checked.

    Raises TypeError for a value that msgpack does not support.
    """
    header = {
        key.name: value for key in HEADER if key.name != "fields" and (value := getattr(message, key.name)) is not None
    }
    header["fields"] = dict(message.fields)
    return [FIRST_FRAME, msgpack.packb(header), *message.buffers]


def decode(frames: Sequence[Buffer], limits: Limits = CLIENT_LIMITS, *, check: bool = True) -> Message:
    """Decode received frames (without the routing id). Unknown header keys and unknown fields are dropped.

    check: also check type, fields and buffers against MESSAGES. Without it any type passes, with all its fields.
    Raises ProtocolError; its `request` is the message's id if that was readable.
    """
    header = _unpacked(frames, limits)
    known: dict[str, Any] = {}
    try:
        known = _validate(HEADER, header, "header")
        message = Message(**known, buffers=tuple(frames[2:]))
        return _checked(message, limits) if check else message
    except ProtocolError as error:
        name = header.get("id")
        error.request = name if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS else None
        raise


def _unpacked(frames: Sequence[Buffer], limits: Limits) -> dict[Any, Any]:
    if len(frames) < 2:
        raise ProtocolError("too few frames", found=len(frames), expected="2 or more")
    if _size(frames[0]) != len(FIRST_FRAME) or bytes(frames[0][: len(MAGIC)]) != MAGIC:
        raise ProtocolError("not a message of this protocol", where="frame 0", expected=f"{MAGIC!r} and the version")
    if frames[0][len(MAGIC)] != MAJOR:
        raise ProtocolError(
            "unsupported protocol version",
            code="version",
            found=frames[0][len(MAGIC)],
            expected=MAJOR,
            do="update the older side",
        )
    if _size(frames[1]) > limits.header_bytes:
        raise _too_large("header", _size(frames[1]), f"at most {limits.header_bytes} bytes")
    if len(frames) - 2 > limits.buffers:
        raise _too_large("buffers", len(frames) - 2, f"at most {limits.buffers}")
    for number, buffer in enumerate(frames[2:], 2):
        if _size(buffer) > limits.buffer_bytes:
            raise _too_large(f"frame {number}", _size(buffer), f"at most {limits.buffer_bytes} bytes")
    try:
        header = msgpack.unpackb(
            frames[1], raw=False, strict_map_key=True, max_array_len=limits.items, max_map_len=limits.items
        )
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise ProtocolError(
            "the header is not msgpack", where="frame 1", found=str(error) or type(error).__name__
        ) from error
    if not isinstance(header, dict):
        raise ProtocolError("the header is not a map", where="frame 1", found=type(header).__name__)
    return header


def _checked(message: Message, limits: Limits) -> Message:
    kind = MESSAGES[limits.sender].get(message.type)
    if kind is None:
        raise ProtocolError(
            f"a {limits.sender} sends no message of this type", code="unknown_type", found=repr(message.type)
        )
    most = kind.buffers + kind.optional_buffers
    if len(message.buffers) > most and limits.sender == "client":
        raise _too_large("buffers", len(message.buffers), f"at most {most}")
    if not kind.buffers <= len(message.buffers) <= most:
        raise _bad_field(f"{kind.type}: buffers", len(message.buffers), str(kind.buffers))
    for key in kind.header:
        if getattr(message, key) is None:
            raise ProtocolError("a field is missing", code="missing_field", where=f"{kind.type}: header.{key}")
    fields = _validate(kind.fields, message.fields, kind.type)
    if kind.type == "frame":
        _check_picture(fields, _size(message.buffers[0]))
    return replace(message, fields=fields)


def _validate(fields: Sequence[Field], values: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """The known fields of `values`, checked; unknown ones are dropped, as the protocol demands.

    Raises ProtocolError: missing_field, bad_field.
    """
    known: dict[str, Any] = {}
    for one in fields:
        if one.name in values:
            known[one.name] = _value(one, values[one.name], where)
        elif one.required:
            raise ProtocolError("a field is missing", code="missing_field", where=f"{where}.{one.name}")
    return known


def _bad_field(where: str, found: object, expected: str) -> ProtocolError:
    """The error for a value of the wrong kind or out of bounds. A deep or long value is abbreviated."""
    return ProtocolError(
        "a field has an invalid value",
        code="bad_field",
        where=where,
        found=reprlib.repr(found),
        expected=expected,
    )


def _is_int(value: object) -> bool:
    """Whether it is a msgpack integer. A boolean is not, although Python's bool is an int."""
    return isinstance(value, int) and not isinstance(value, bool)


def _value(field: Field, value: Any, where: str) -> Any:
    size: int | float | None = None
    if field.kind == "str":
        good = isinstance(value, str) and (field.open or not field.choices or value in field.choices)
        size = len(value) if good else None
    elif field.kind == "int":
        good = _is_int(value)
        size = value if good else None
    elif field.kind == "float":
        good = (_is_int(value) or isinstance(value, float)) and math.isfinite(value)
        size = value if good else None
    elif field.kind == "bool":
        good = isinstance(value, bool)
    elif field.kind == "map":
        good = isinstance(value, dict)
    else:
        good = isinstance(value, list)
        size = len(value) if good else None
    if size is not None:
        good = (field.least is None or size >= field.least) and (field.most is None or size <= field.most)
    if not good:
        raise _bad_field(_path(where, field), value, allowed(field))
    if field.kind == "map" and field.of:
        return _validate(field.of, value, _path(where, field))
    if field.kind == "list":
        path = _path(where, field)
        return [_value(field.of[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


def _path(where: str, field: Field) -> str:
    return f"{where}.{field.name}" if field.name else where


def _check_picture(fields: Mapping[str, Any], size: int) -> None:
    """A raw frame's rows must fill its buffer exactly, so that a reader can use the buffer as an array."""
    row = fields["width"] * (3 if fields["pixel_format"] == "rgb24" else 4)
    if fields["codec"] == "raw" and fields["stride"] < row:
        raise _bad_field("frame.stride", fields["stride"], f"at least {row}")
    if fields["codec"] == "raw" and size != fields["stride"] * fields["height"]:
        raise _bad_field("frame: buffer", f"{size} bytes", f"stride x height, {fields['stride'] * fields['height']}")


def _size(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _too_large(where: str, found: int, expected: str) -> ProtocolError:
    return ProtocolError("too large", code="too_large", where=where, found=found, expected=expected)
