"""The broken messages in vectors.json, each with its expected error code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from animegamer_rt.serving.wire import CLIENT_LIMITS, FIRST_FRAME, SERVER_LIMITS, Sender
from samples import FRAME, SESSION, TOKEN, WAVE


@dataclass(frozen=True, slots=True)
class Broken:
    """Frames that must be refused with `code`; a pair (byte, count) is a frame of repeated bytes.

    layer: "frames" if the codec alone must detect it, "fields" if that needs the table of messages.
    """

    name: str
    sender: Sender
    code: str
    layer: str
    frames: tuple[bytes | tuple[bytes, int], ...]


def _packed(**header: Any) -> tuple[bytes, bytes]:
    return FIRST_FRAME, msgpack.packb(header)


def _hello(**changes: Any) -> tuple[bytes, bytes]:
    return _packed(type="hello", fields={"versions": [1], "client": "x", **changes})


def _turn(**changes: Any) -> tuple[bytes, bytes]:
    """A turn request with changed fields; None removes one."""
    fields = {"instruction": WAVE, "turn_id": "a-1", "token": TOKEN, **changes}
    fields = {key: value for key, value in fields.items() if value is not None}
    return _packed(type="turn", session=SESSION, fields=fields)


def _of_turn(type: str, **fields: Any) -> tuple[bytes, bytes]:
    return _packed(type=type, session=SESSION, turn=3, seq=12, fields=fields)


def _picture(*buffers: bytes, **changes: Any) -> tuple[bytes, ...]:
    fields = {**FRAME, "stride": 8, "pixel_format": "rgba32", "codec": "raw", **changes}
    return *_of_turn("frame", **fields), *buffers


def _frames(name: str, code: str, *frames: bytes | tuple[bytes, int], sender: Sender = "client") -> Broken:
    return Broken(name, sender, code, "frames", frames)


def _header(name: str, code: str, header: bytes | tuple[bytes, int], sender: Sender = "client") -> Broken:
    return Broken(name, sender, code, "frames", (FIRST_FRAME, header))


def _fields(name: str, code: str, frames: tuple[bytes, ...], sender: Sender = "client") -> Broken:
    return Broken(name, sender, code, "fields", frames)


_PING = msgpack.packb({"type": "ping"})
_OPENED = {"token": TOKEN, "seed": 3, "history_turns": 4, "turns": 2, "character": {"stamina": 50}}

BROKEN = (
    _frames("nothing", "protocol"),
    _frames("one frame", "protocol", FIRST_FRAME),
    _frames("empty frames", "protocol", b"", b""),
    _frames("wrong magic", "protocol", b"AGRX\x01", _PING),
    _frames("magic alone", "protocol", b"AGRT", _PING),
    _frames("a byte too many in frame 0", "protocol", b"AGRT\x01\x00", _PING),
    _frames("an empty delimiter before the magic", "protocol", b"", FIRST_FRAME, _PING),
    _frames("an older version", "version", b"AGRT\x00", _PING),
    _frames("a newer version", "version", b"AGRT\x02", _PING),
    _header("an empty header", "protocol", b""),
    _header("a header that is not msgpack", "protocol", b"\xc1"),
    _header("a header that is JSON", "protocol", b'{"type":"ping"}'),
    _header("a header cut short", "protocol", _PING[:-1]),
    _header("a header with a byte too many", "protocol", _PING + b"\xc0"),
    _header("a header that is a list", "protocol", b"\x91\xa4ping"),
    _header("a header with a number as a key", "protocol", b"\x81\x01\x01"),
    _header("text that is not UTF-8", "protocol", b"\x81\xa4type\xa2\xff\xfe"),
    _header("1 GiB of text declared", "protocol", b"\x81\xa4type\xdb\x40\0\0\0"),
    _header("1 GiB of bytes declared", "protocol", b"\x81\xa4type\xc6\x40\0\0\0"),
    _header("1 GiB of an extension declared", "protocol", b"\x81\xa4type\xc9\x40\0\0\0\x01"),
    _header("a list of 2^30 declared", "protocol", b"\x81\xa4type\xdd\x40\0\0\0"),
    _header("a map of 2^30 declared", "protocol", b"\xdf\x40\0\0\0"),
    _header("lists nested 60 000 deep", "protocol", (b"\x91", 60_000)),
    _header("lists of 256 nested 20 000 deep", "protocol", (b"\xdc\x01\x00", 20_000)),
    _header("a header over its limit", "too_large", (b"\xc0", CLIENT_LIMITS.header_bytes + 1)),
    _header("an answer's header over its limit", "too_large", (b"\xc0", SERVER_LIMITS.header_bytes + 1), "server"),
    _frames("a buffer in a request", "too_large", FIRST_FRAME, _PING, b""),
    _frames("two buffers", "too_large", *_picture(bytes(16), b""), sender="server"),
    _frames(
        "a buffer over its limit", "too_large", *_picture(), (b"\0", SERVER_LIMITS.buffer_bytes + 1), sender="server"
    ),
    _frames("no type", "missing_field", *_packed(fields={})),
    _frames("type that is nil", "bad_field", *_packed(type=None)),
    _frames("id that is a number", "bad_field", *_packed(type="ping", id=7)),
    _frames("id of 65 characters", "bad_field", *_packed(type="ping", id="7" * 65)),
    _frames("turn 0", "bad_field", *_packed(type="ping", turn=0)),
    _frames("seq that is true", "bad_field", *_packed(type="ping", seq=True)),
    _frames("fields that are a list", "bad_field", *_packed(type="ping", fields=[])),
    _fields("a type that nobody knows", "unknown_type", _packed(type="dance")),
    _fields("an answer as a request", "unknown_type", _packed(type="welcome")),
    _fields("turn without session", "missing_field", _packed(type="turn", fields={})),
    _fields("turn without token", "missing_field", _turn(token=None)),
    _fields("instruction that is bytes", "bad_field", _turn(instruction=b"wave")),
    _fields("turn_id of 65 characters", "bad_field", _turn(turn_id="a" * 65)),
    _fields("deadline that is no number", "bad_field", _turn(deadline_s=float("nan"))),
    _fields("deadline 0", "bad_field", _turn(deadline_s=0)),
    _fields("negative seed", "bad_field", _packed(type="open", fields={"seed": -1})),
    _fields("seed of 64 bits", "bad_field", _packed(type="open", fields={"seed": 2**63})),
    _fields("a codec that nobody knows", "bad_field", _hello(codec="gif")),
    _fields("versions that are text", "bad_field", _hello(versions=["1"])),
    _fields("no versions", "bad_field", _hello(versions=[])),
    _fields("a frame without its buffer", "bad_field", _picture(), "server"),
    _fields("a frame with a short buffer", "bad_field", _picture(bytes(15)), "server"),
    _fields("a frame whose rows overlap", "bad_field", _picture(bytes(14), stride=7), "server"),
    _fields("a frame without seq", "missing_field", (*_packed(type="frame", session=SESSION, turn=3), b""), "server"),
    _fields("a strength of 6", "bad_field", _of_turn("state", motion_level=6), "server"),
    _fields(
        "a character without social", "missing_field", _packed(type="opened", session=SESSION, fields=_OPENED), "server"
    ),
)
