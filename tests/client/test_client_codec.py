"""The client's own codec is held to the same golden bytes; its errors say what to do."""

from __future__ import annotations

import golden_messages as golden
import msgpack
import pytest

import animegamer_client.codec as codec
from animegamer_client.errors import ProtocolError

FROM_CLIENT = codec.Limits(header_bytes=64 * 1024, buffer_bytes=0, buffers=0)


def test_golden_messages_are_read_and_written_to_the_byte() -> None:
    for vector in golden.MESSAGES:
        frames = golden.frames(vector)
        message = codec.decode(frames)
        if not vector["canonical"]:
            message = codec.Message(message.type, vector["header"]["fields"], id=message.id)
        assert golden.header(message) == vector["header"], vector["name"]
        assert list(message.buffers) == frames[2:], vector["name"]
        assert not vector["canonical"] or codec.encode(message) == frames, vector["name"]


def test_broken_frames_are_refused_with_their_code() -> None:
    for vector in golden.REFUSED:
        if vector["layer"] == "frames":
            with pytest.raises(ProtocolError) as refusal:
                codec.decode(golden.frames(vector), FROM_CLIENT if vector["sender"] == "client" else codec.FROM_SERVER)
            assert refusal.value.code == vector["code"], vector["name"]


def test_sizes_are_checked_before_anything_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpackb(*_: object, **__: object) -> None:
        raise AssertionError("msgpack was asked")

    monkeypatch.setattr(msgpack, "unpackb", unpackb)
    for header, buffer in ((bytes(256 * 1024 + 1), b""), (b"\x80", memoryview(bytes(64 * 2**20 + 1)))):
        with pytest.raises(ProtocolError) as refusal:
            codec.decode([codec.MAGIC + b"\x01", header, buffer])
        assert refusal.value.code == "too_large"
