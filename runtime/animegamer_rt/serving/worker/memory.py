"""Memory that this process uses."""

from __future__ import annotations

import functools

import psutil


def resident_mib() -> float:
    """Physical memory held now, in MiB."""
    resident: int = _this_process().memory_info().rss
    return round(resident / 2**20, 1)


@functools.cache
def _this_process() -> psutil.Process:
    return psutil.Process()
