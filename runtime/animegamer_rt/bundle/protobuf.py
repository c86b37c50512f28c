"""Reads the fields of a protobuf message: playing needs no onnx package to read its files."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

Buffer = mmap.mmap | memoryview
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5


def fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int | None, int, int]]:
    """(number, value, first, last) of each field between two offsets, in the wire format of protobuf.dev.

    value: of a whole number; None for text, bytes and messages. first, last: where the field's bytes begin and end.
    Raises ValueError for data that is not such a message.
    """
    while at < end:
        key, at = varint(data, at, end)
        kind, first, value = key & 7, at, None
        if kind == VARINT:
            value, at = varint(data, at, end)
        elif kind == LENGTH:
            size, first = varint(data, at, end)
            at = first + size
        elif kind in (FOUR_BYTES, EIGHT_BYTES):
            at += 4 if kind == FOUR_BYTES else 8
            value = int.from_bytes(data[first:at], "little")
        else:
            raise ValueError(f"wire type {kind}")
        if at > end:
            raise ValueError("a field is truncated")
        yield key >> 3, value, first, at


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """A number and the offset behind it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is truncated")
