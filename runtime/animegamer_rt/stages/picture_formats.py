"""Tells a PNG, JPEG or WebP file by its first bytes, and whether it is complete.

The decoder gets the format and never guesses: FFmpeg would also accept a playlist, and open what it names.
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


def is_whole(content: bytes, name: str) -> bool:
    """Whether the file of this format is complete."""
    try:
        return _CHECKS[name](content)
    except (IndexError, struct.error):
        return False


def _png(content: bytes) -> bool:
    at = 8
    while True:
        length, kind = struct.unpack_from(">I4s", content, at)
        at += 12 + length
        if at > len(content):
            return False
        if kind == b"IEND":
            return True


def _jpeg(content: bytes) -> bool:
    """Whether an end marker follows the last scan; those inside segments, such as a thumbnail's, do not count."""
    at = 2
    while True:
        while content[at] == 0xFF and content[at + 1] == 0xFF:  # fill bytes
            at += 1
        if content[at] != 0xFF:
            return False
        marker = content[at + 1]
        if marker == 0xD9:
            return True
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        at += 2 + int(struct.unpack_from(">H", content, at + 2)[0])
        if marker == 0xDA:
            following = _NEXT_MARKER.search(content, at)
            if following is None:
                return False
            at = following.start()


_NEXT_MARKER = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
"""Inside a scan 0xFF is followed by 0, or by the number of a restart."""


def _riff(content: bytes) -> bool:
    return 8 + int(struct.unpack_from("<I", content, 4)[0]) <= len(content)


_CHECKS: Mapping[str, Callable[[bytes], bool]] = {
    "png_pipe": _png,
    "jpeg_pipe": _jpeg,
    "webp_pipe": _riff,
}
