"""How much of some files the system holds in memory: what starts from there starts sooner than from a disk.

Knows mincore of Linux; elsewhere nothing is told.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def cached_share(paths: Sequence[Path]) -> float | None:
    """Share of these files' pages that are in the page cache, 0 to 1; None where the system does not tell.

    Linux tells it only of files that this process may write, as it tells what other users read.
    """
    if sys.platform != "linux" or not all(os.access(path, os.W_OK) for path in paths):
        return None
    pages = held = 0
    for path in paths:
        with path.open("rb") as file:
            found = _resident(file.fileno(), path.stat().st_size)
        if found is None:
            return None
        pages, held = pages + len(found), held + sum(one & 1 for one in found)
    return round(held / pages, 3) if pages else None


def _resident(file: int, size: int) -> bytes | None:
    """A byte for each page of a file, its lowest bit set if the page is in memory; None if the system does not tell."""
    if size == 0:
        return b""
    with mmap.mmap(file, size, access=mmap.ACCESS_COPY) as mapped:  # from_buffer wants one that may be written
        start = ctypes.c_char.from_buffer(mapped)
        answer = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), answer)
        del start  # an export of the map would keep it from being closed
    return None if failed else bytes(answer)
