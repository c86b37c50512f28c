"""Looks at the server's processes and files while a soak runs, and says how much their memory grows.

Knows what a look gives; nothing of turns or faults.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from animegamer_bench.machine import Sampler

SAMPLE_S, MAX_SAMPLES = 1.0, 1000
"""Between two samples; when there are so many, every other one goes and the time between them doubles."""
WARM_UP_TURNS, MIN_TURNS = 500, 500
"""The first turns of a process are left out of its growth; fewest turns after them that say anything about it."""


class Watch(Sampler):
    """Inside `with`: `samples` has what `look` gave, with the seconds since the start and the number of turns."""

    def __init__(self, look: Callable[[], Mapping[str, Any] | None], turns: Callable[[], int]) -> None:
        super().__init__(SAMPLE_S, "watch")
        self.samples: list[dict[str, Any]] = []
        self._look, self._turns, self._started = look, turns, time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return round(time.monotonic() - self._started, 1)

    def sample(self) -> None:
        """Look once; half of the samples are left out, and half as many taken, each time that there are too many."""
        if (figures := self._look()) is not None:
            self.samples.append({"seconds": self.seconds, "turns": self._turns(), **figures})
        if len(self.samples) >= MAX_SAMPLES:
            del self.samples[::2]
            self.period_s *= 2


def growth(samples: Sequence[Mapping[str, Any]], process: str) -> float | None:
    """MiB of resident memory per 1000 turns: the slope over the turns of the process that lived for most of them.

    Its first WARM_UP_TURNS are left out. None if fewer than MIN_TURNS were played after them: a slope over fewer is
    noise, multiplied.
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
