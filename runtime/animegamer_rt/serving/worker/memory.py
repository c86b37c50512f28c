"""Memory that this process uses."""

from __future__ import annotations

import psutil


def resident_mib() -> float:
    """Physical memory held now, in MiB."""
    return round(psutil.Process().memory_info().rss / 2**20, 1)
