"""Samples the server's processes and files during a soak, and measures memory growth."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from animegamer_bench.machine import Sampler

SAMPLE_S, MAX_SAMPLES = 1.0, 1000
"""Seconds between samples, and their maximum number, at which every other one is dropped and the interval doubles."""
WARM_UP_TURNS, MIN_TURNS = 2000, 500
"""Turns of a process excluded from its growth, and the minimum number of turns after them.

Meanwhile a worker fills `faulty_worker.readings` and Python's free lists, which a full collection empties.
"""


class Watch(Sampler):
    """Inside `with`: `samples` has the results of `look`, with the seconds since the start and the number of turns."""

    def __init__(self, look: Callable[[], Mapping[str, Any] | None], turns: Callable[[], int]) -> None:
        super().__init__(SAMPLE_S, "watch")
        self.samples: list[dict[str, Any]] = []
        self._look, self._turns, self._started = look, turns, time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self._started, 1)

    def sample(self) -> None:
        """Takes a sample; drops every other one and doubles the interval when there are too many."""
        if (figures := self._look()) is not None:
            self.samples.append({"seconds": self.seconds, "turns": self._turns(), **figures})
        if len(self.samples) >= MAX_SAMPLES:
            del self.samples[::2]
            self.period_s *= 2


def columns(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The samples as a record has them, one list for each figure.

    `process` in place of `pid`: 0 for the first processes, 1 for those that replaced any of them, and so on.
    """
    table: dict[str, Any] = {}
    for name in samples[0] if samples else ():
        column = [sample[name] for sample in samples]
        if name == "pid":
            numbers: dict[str, int] = {}
            table["process"] = [numbers.setdefault(str(pids), len(numbers)) for pids in column]
        else:
            table[name] = columns(column) if isinstance(column[0], Mapping) else column
    return table


def growth(samples: Sequence[Mapping[str, Any]], process: str) -> float | None:
    """MiB of resident memory per 1000 turns: the slope over the process that lived for most of the turns.

    Its first WARM_UP_TURNS are excluded. None if fewer than MIN_TURNS followed: a slope over fewer is noise.
    """
    lives: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for sample in samples:
        lives[str(sample[process]["pid"])].append(sample)
    longest = max(lives.values(), key=lambda life: life[-1]["turns"] - life[0]["turns"], default=[])
    kept = [sample for sample in longest if sample["turns"] >= longest[0]["turns"] + WARM_UP_TURNS]
    turns = np.array([sample["turns"] for sample in kept], float)
    if not kept or turns[-1] - turns[0] < MIN_TURNS:
        return None
    slope = np.polyfit(turns, [sample[process]["resident_mib"] for sample in kept], 1)[0]
    return round(1000 * float(slope), 3)
