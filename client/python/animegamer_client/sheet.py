"""A game's contact sheet: a few pictures of each turn side by side, a row a turn, as a PNG of the standard library.

Knows pictures (uint8 RGB) and files, nothing of turns' meaning.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .events import Pixels

PICTURES = 6
MOST_WIDTH = 160
"""Most pixels of one picture across; larger ones are thinned to it."""
GAP = 4
MOST_ROWS = 40
"""The newest turns of a longer game."""


def sheet_row(frames: Sequence[Pixels]) -> Pixels:
    """One turn: pictures evenly through time, side by side, [h, w, 3]. `frames` are RGB of one size, at least one."""
    step = -(-frames[0].shape[1] // MOST_WIDTH)
    chosen = [frames[index][::step, ::step] for index in np.linspace(0, len(frames) - 1, PICTURES).round().astype(int)]
    gap = np.full((chosen[0].shape[0], GAP, 3), 255, np.uint8)
    return np.concatenate([piece for picture in chosen for piece in (picture, gap)][:-1], axis=1)


def write_sheet(path: Path, rows: Sequence[Pixels]) -> None:
    """Write the sheet, the oldest turn on top. Raises OSError."""
    gap = np.full((GAP, rows[0].shape[1], 3), 255, np.uint8)
    pieces = [piece for row in rows[-MOST_ROWS:] for piece in (row, gap)]
    write_file(path, png(np.concatenate(pieces[:-1], axis=0)))


def png(picture: Pixels) -> bytes:
    """A PNG file of one RGB picture [height, width, 3]."""
    height, width, _ = picture.shape
    filtered = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter's number, 0: none
    filtered[:, 1:] = picture.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader sees the old one or the new. Raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
