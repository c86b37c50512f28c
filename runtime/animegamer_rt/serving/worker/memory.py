"""Memory that this process uses."""

from __future__ import annotations

import psutil


def resident_mib() -> float:
    """Physical memory held now, in MiB."""
    resident: int = psutil.Process().memory_info().rss
    return round(resident / 2**20, 1)
