"""Physical memory of this process: measuring it, and returning unused memory to the system."""

from __future__ import annotations

import ctypes
import functools
import sys

import psutil

RELEASE_S = 60.0
"""How often a long-running process returns memory."""


def resident_mib() -> float:
    """Physical memory held now, in MiB."""
    resident: int = _this_process().memory_info().rss
    return round(resident / 2**20, 1)


def release_free() -> None:
    """Return freed memory to the system. glibc would keep it, and a peak would stay with the process.

    Takes milliseconds. Does nothing with other C libraries.
    """
    if (trim := _trim()) is not None:
        trim(0)


@functools.cache
def _trim() -> ctypes._FuncPointer | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


@functools.cache
def _this_process() -> psutil.Process:
    return psutil.Process()
