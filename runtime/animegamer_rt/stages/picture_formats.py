"""Tells a PNG, JPEG or WebP file by its first bytes, and picks what its decoder needs.

The decoder gets the format and never guesses: FFmpeg would also accept a playlist, and open what it names. Nor does it
get what makes a small file costly: it would inflate 2 MiB of a PNG's text or colour profile to 2 GiB.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

SIGNATURES: Mapping[str, re.Pattern[bytes]] = {
    "png_pipe": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg_pipe": re.compile(rb"\xff\xd8\xff"),
    "webp_pipe": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""FFmpeg's name of a format -> how its files begin."""


def format_of(content: bytes) -> str | None:
    """FFmpeg's name of the format; None of any other."""
    return next((name for name, begins in SIGNATURES.items() if begins.match(content)), None)


MAX_SCANS = 100
"""Of a JPEG file; each takes as long as the picture is large. Cameras and programs write a dozen at most."""
_INFLATED = (b"iCCP", b"iTXt", b"zTXt")
"""The chunks of a PNG file that hold compressed data but no pixels."""


def decodable(content: bytes, name: str) -> bytes:
    """What the decoder of this format needs of a file. Raises ValueError for one that is incomplete or too costly."""
    try:
        return _READERS[name](content)
    except (IndexError, struct.error) as error:
        raise ValueError("a truncated file") from error


def _png(content: bytes) -> bytes:
    at, parts = 8, [content[:8]]
    while True:
        length, kind = struct.unpack_from(">I4s", content, at)
        end = at + 12 + length
        if end > len(content):
            raise IndexError
        if kind not in _INFLATED:
            parts.append(content[at:end])
        if kind == b"IEND":
            return b"".join(parts)
        at = end


def _jpeg(content: bytes) -> bytes:
    """An end marker must follow the last scan; those inside segments, such as a thumbnail's, do not count."""
    at, scans = 2, 0
    while True:
        while content[at] == 0xFF and content[at + 1] == 0xFF:  # fill bytes
            at += 1
        if content[at] != 0xFF:
            raise IndexError
        marker = content[at + 1]
        if marker == 0xD9:
            return content
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        at += 2 + int(struct.unpack_from(">H", content, at + 2)[0])
        if marker == 0xDA:
            scans += 1
            if scans > MAX_SCANS:
                raise ValueError(f"more than {MAX_SCANS} scans")
            following = _NEXT_MARKER.search(content, at)
            if following is None:
                raise IndexError
            at = following.start()


_NEXT_MARKER = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
"""Inside a scan 0xFF is followed by 0, or by the number of a restart."""


def _riff(content: bytes) -> bytes:
    if 8 + int(struct.unpack_from("<I", content, 4)[0]) > len(content):
        raise IndexError
    return content


_READERS: Mapping[str, Callable[[bytes], bytes]] = {
    "png_pipe": _png,
    "jpeg_pipe": _jpeg,
    "webp_pipe": _riff,
}
