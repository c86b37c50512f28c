"""Percentiles of measured values, as far as their count carries them.

Knows numbers; nothing of what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

FEWEST: Mapping[int, int] = MappingProxyType({50: 1, 90: 10, 95: 20, 99: 100})
"""Percentile -> fewest values that carry it: one value lies above it. Below that it would only be the maximum."""


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile of measured seconds, to four digits: no machine repeats more."""
    return round(float(np.percentile(values, percent)), 4)


def percentiles(values: Sequence[float], wanted: Sequence[int] = tuple(FEWEST)) -> dict[str, float | None]:
    """p50, p90, p95, p99 and max, rounded to four digits; None for a percentile that the count does not carry."""
    found = {f"p{p}": percentile(values, p) if len(values) >= FEWEST[p] else None for p in wanted}
    return {**found, "max": round(max(values), 4)}
