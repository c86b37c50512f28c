"""Records the card's clocks, power, temperature and throttling while a job runs.

Reads NVML from the process that runs the jobs, so nothing is lost if a job crashes. Imports no torch.
"""

from __future__ import annotations

from typing import Any

from animegamer_bench.machine import Card

FIGURES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


class CardWatch:
    """Collects readings of one card; None without NVML."""

    def __init__(self, card: Card | None) -> None:
        self._card = card
        self._read: dict[str, list[float]] = {name: [] for name in FIGURES}
        self._throttled: set[str] = set()

    def look(self) -> None:
        """Takes one reading, without figures that the card does not report."""
        if self._card is None:
            return
        now = {**self._card.facts(), "power_w": self._card.watts()}
        for name, values in self._read.items():
            if isinstance(value := now[name], int | float):
                values.append(value)
        self._throttled.update(self._card.throttled())

    def seen(self) -> dict[str, Any] | None:
        """Minimum and maximum of each figure since the last call, and the throttling reasons; None without readings."""
        found: dict[str, Any] = {name: [min(values), max(values)] for name, values in self._read.items() if values}
        if found:
            found["throttled"] = sorted(self._throttled)
        self._read, self._throttled = {name: [] for name in FIGURES}, set()
        return found or None
