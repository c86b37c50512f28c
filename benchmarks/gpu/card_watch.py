"""What the card did while a job ran: clocks, power, temperature, and why it was slowed down.

Read by NVML from the process that runs the jobs, so a job that dies loses nothing. Imports no torch.
"""

from __future__ import annotations

from typing import Any

from animegamer_bench.machine import Card

FIGURES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w")


class CardWatch:
    """Collects readings of one card; None for a card that NVML does not tell of."""

    def __init__(self, card: Card | None) -> None:
        self._card = card
        self._read: dict[str, list[float]] = {name: [] for name in FIGURES}
        self._throttled: set[str] = set()

    def look(self) -> None:
        """Take one reading; a figure that the card does not tell is left out."""
        if self._card is None:
            return
        now = {**self._card.facts(), "power_w": self._card.watts()}
        for name, values in self._read.items():
            if isinstance(value := now[name], int | float):
                values.append(value)
        self._throttled.update(self._card.throttled())

    def seen(self) -> dict[str, Any] | None:
        """The least and the most of each figure since the last call, and the reasons of throttling; None if nothing."""
        found: dict[str, Any] = {name: [min(values), max(values)] for name, values in self._read.items() if values}
        if found:
            found["throttled"] = sorted(self._throttled)
        self._read, self._throttled = {name: [] for name in FIGURES}, set()
        return found or None
