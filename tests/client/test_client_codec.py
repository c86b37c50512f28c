"""The client's own codec is held to the same golden bytes; its errors say what to do."""

from __future__ import annotations

from typing import Any

import golden_messages as golden
import msgpack
import pytest

import animegamer_client.codec as codec
from animegamer_client.errors import ProtocolError, ServerRefused, TimedOut
from animegamer_rt.serving import wire

FRAMES_ALONE = [vector for vector in golden.REFUSED if vector["layer"] == "frames"]
FROM_CLIENT = codec.Limits(header_bytes=64 * 1024, buffer_bytes=0, buffers=0)


@pytest.mark.parametrize("vector", golden.MESSAGES, ids=golden.names(golden.MESSAGES))
def test_golden_message_is_read_and_written_to_the_byte(vector: dict[str, Any]) -> None:
    frames = golden.frames(vector)
    message = codec.decode(frames)
    if not vector["canonical"]:
        message = codec.Message(message.type, vector["header"]["fields"], id=message.id)
    assert golden.header(message) == vector["header"]
    assert list(message.buffers) == frames[2:]
    if vector["canonical"]:
        assert codec.encode(message) == frames


@pytest.mark.parametrize("vector", FRAMES_ALONE, ids=golden.names(FRAMES_ALONE))
def test_broken_frames_are_refused_with_their_code(vector: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as refusal:
        codec.decode(golden.frames(vector), FROM_CLIENT if vector["sender"] == "client" else codec.FROM_SERVER)
    assert refusal.value.code == vector["code"]


def test_limits_are_those_of_the_protocol() -> None:
    for field in ("header_bytes", "buffer_bytes", "buffers"):
        assert getattr(codec.FROM_SERVER, field) == getattr(wire.SERVER_LIMITS, field)


def test_sizes_are_checked_before_anything_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpackb(*_: object, **__: object) -> None:
        raise AssertionError("msgpack was asked")

    monkeypatch.setattr(msgpack, "unpackb", unpackb)
    for header, buffer in ((bytes(256 * 1024 + 1), b""), (b"\x80", memoryview(bytes(64 * 2**20 + 1)))):
        with pytest.raises(ProtocolError) as refusal:
            codec.decode([codec.MAGIC + b"\x01", header, buffer])
        assert refusal.value.code == "too_large"


def test_buffers_are_not_copied() -> None:
    pixels = bytearray(16)
    message = codec.decode(codec.encode(codec.Message("frame", {}, buffers=(memoryview(pixels),))))
    pixels[5] = 77
    assert message.buffers[0][5] == 77


def test_errors_have_code_text_and_what_to_do() -> None:
    refused = ServerRefused("busy", "16 turns wait already", "try again")
    assert (refused.code, refused.text, refused.do) == ("busy", "16 turns wait already", "try again")
    assert str(refused) == "16 turns wait already; try again"
    assert (TimedOut("no answer").code, str(TimedOut("no answer"))) == ("timed_out", "no answer")
