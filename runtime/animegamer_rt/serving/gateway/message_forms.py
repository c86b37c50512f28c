"""WebSocket messages: the header as JSON or msgpack, followed by a picture's bytes, in both directions.

client/PROTOCOL.md, section WebSocket, describes both forms.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgpack

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.wire.codec import CLIENT_LIMITS, FIRST_FRAME, Buffer, Message, decode

JSON, MSGPACK = "animegamer.v1.json", "animegamer.v1.msgpack"
SUBPROTOCOLS = (JSON, MSGPACK)
LENGTH_BYTES = 4
"""A binary message begins with the length of its header, big-endian."""


def read_request(data: str | bytes, form: str) -> Message:
    """Decode a client's message. Its fields are not checked: the server does that.

    Raises ProtocolError, and no other error, whatever the data.
    """
    if isinstance(data, str):
        if form != JSON:
            raise ProtocolError("the wrong kind of WebSocket message", where=form, expected="a binary message")
        return decode([FIRST_FRAME, _packed_json(data)], CLIENT_LIMITS, check=False)
    header, *buffers = _split_header(data)
    packed = _packed_json(header) if form == JSON else header
    return decode([FIRST_FRAME, packed, *buffers], CLIENT_LIMITS, check=False)


def _packed_json(text: str | bytes) -> bytes:
    size = len(text.encode(errors="replace") if isinstance(text, str) else text)
    if size > CLIENT_LIMITS.header_bytes:
        expected = f"at most {CLIENT_LIMITS.header_bytes} bytes"
        raise ProtocolError("too large", code="too_large", where="message", found=size, expected=expected)
    try:
        header = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the message is not JSON", found=str(error)) from error
    if not isinstance(header, dict):
        raise ProtocolError("the message is not a JSON object", found=type(header).__name__)
    try:
        packed: bytes = msgpack.packb(header)
    except (ValueError, OverflowError, RecursionError) as error:
        what = "the message holds a value that cannot be sent"
        raise ProtocolError(what, found=str(error), expected="UTF-8 text and 64-bit numbers") from error
    return packed


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _split_header(data: bytes) -> list[bytes]:
    """The header of a binary message, and the buffer that follows it, if any."""
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
    if not LENGTH_BYTES < end <= len(data):
        found = f"{end - LENGTH_BYTES} in a message of {len(data)} bytes"
        expected = f"the bytes of the header, at most the message's length less {LENGTH_BYTES}"
        raise ProtocolError("the header's length is wrong", found=found, expected=expected)
    return [data[LENGTH_BYTES:end], data[end:]] if end < len(data) else [data[LENGTH_BYTES:]]


def write_answer(frames: Sequence[Buffer], form: str) -> str | bytes:
    """Encode a server's message, as received over ZeroMQ, for a browser."""
    packed, buffers = frames[1], frames[2:]
    if form == JSON:
        text = json.dumps(msgpack.unpackb(packed), ensure_ascii=False, separators=(",", ":"))
        return text if not buffers else _with_length(text.encode(), buffers)
    return _with_length(bytes(packed), buffers)


def _with_length(header: bytes, buffers: Sequence[Buffer]) -> bytes:
    return b"".join([len(header).to_bytes(LENGTH_BYTES, "big"), header, *buffers])


def error_answer(fields: dict[str, Any], parent: str | None, form: str) -> str | bytes:
    """An `error` of the gateway's own."""
    header: dict[str, Any] = {"type": "error", "fields": fields} | ({} if parent is None else {"parent": parent})
    return write_answer([FIRST_FRAME, msgpack.packb(header)], form)
