"""Detects a picture's format from its first bytes, and whether the file is complete.

The decoder gets the format and never guesses: FFmpeg would also accept a playlist, and open what it names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

SIGNATURES: Mapping[str, re.Pattern[bytes]] = {
    "png_pipe": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg_pipe": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp_pipe": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "bmp_pipe": re.compile(rb"BM.{4}\0\0\0\0", re.DOTALL),
    "tiff_pipe": re.compile(rb"II\*\0|MM\0\*"),
    "mov": re.compile(rb"....ftyp", re.DOTALL),
    "matroska": re.compile(rb"\x1a\x45\xdf\xa3"),
}
"""FFmpeg's name of a format -> how its files begin. The last two are videos, and AVIF and HEIF."""


def format_of(content: bytes) -> str | None:
    """FFmpeg's name of the format; None if it is not a picture."""
    return next((name for name, begins in SIGNATURES.items() if begins.match(content)), None)


def is_whole(content: bytes, name: str) -> bool:
    """Whether the file is complete; True for formats without a detectable end."""
    check = _CHECKS.get(name)
    try:
        return check is None or check(content)
    except (IndexError, struct.error):
        return False


def mirrored_axis(content: bytes, name: str) -> int | None:
    """The axis to flip after the rotation that FFmpeg reports, which ignores Exif's mirrored orientations.

    0: rows, 1: columns; None for a picture that is not mirrored, or without readable Exif. Only JPEG, PNG and WebP are
    rotated by Exif: HEIF and AVIF have their own fields, and an Exif orientation in them does not count.
    """
    found = _EXIF.search(content) if name in ("jpeg_pipe", "png_pipe", "webp_pipe") else None
    if found is None:
        return None
    at, order = found.end(), "<" if content[found.end() :].startswith(b"II") else ">"
    try:
        entries_at = at + int(struct.unpack_from(f"{order}I", content, at + 4)[0])
        (count,) = struct.unpack_from(f"{order}H", content, entries_at)
        for number in range(count):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", content, entries_at + 2 + 12 * number)
            if tag == _ORIENTATION:
                return _MIRRORED.get(value)
    except struct.error:
        pass
    return None


_EXIF = re.compile(rb"(?:Exif\0\0|eXIf|EXIF.{4})(?=II\*\0|MM\0\*)", re.DOTALL)
"""Precedes the Exif data of a JPEG, a PNG and a WebP."""
_ORIENTATION = 0x0112
_MIRRORED: Mapping[int, int] = {2: 0, 4: 0, 5: 1, 7: 1}


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


def _gif(content: bytes) -> bool:
    flags = content[10]
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while content[at] != 0x3B:
        if content[at] == 0x2C:
            flags = content[at + 9]
            at += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        elif content[at] == 0x21:
            at += 2
        else:
            return False
        while content[at]:
            at += 1 + content[at]
        at += 1
    return True


def _riff(content: bytes) -> bool:
    return 8 + int(struct.unpack_from("<I", content, 4)[0]) <= len(content)


def _bmp(content: bytes) -> bool:
    offset, header, width, height, _, bits, compression = struct.unpack_from("<IIiiHHI", content, 10)
    if header < 40 or compression not in (0, 3):  # other row formats: left to the decoder
        return True
    return int(offset + (width * bits + 31) // 32 * 4 * abs(height)) <= len(content)


_CHECKS: Mapping[str, Callable[[bytes], bool]] = {
    "png_pipe": _png,
    "jpeg_pipe": _jpeg,
    "gif": _gif,
    "webp_pipe": _riff,
    "bmp_pipe": _bmp,
}
