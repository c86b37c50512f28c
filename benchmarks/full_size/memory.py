"""Watches how much memory a process and its children take together."""

from __future__ import annotations

import contextlib
import time

import psutil

from animegamer_rt.profiling.sampler import Sampler

PAUSE_S = 0.2
"""Between two looks. A GiB of new memory takes about as long to be filled for the first time."""
LOOKS = 10
"""After so many looks new children are looked for, which reads every process of the machine."""


class MemoryWatch(Sampler):
    """Adds up the resident memory of a process and all below it, five times a second, until the `with` ends.

    Pages of mapped files count while they are in memory, and pages that processes share count for each of them.
    """

    def __init__(self, process_id: int) -> None:
        super().__init__(PAUSE_S, "memory")
        self._process = psutil.Process(process_id)
        self._watched, self._looks = [self._process], 0
        self._found: list[tuple[float, int]] = []

    def peak_gib(self, since: float = 0.0, until: float = float("inf")) -> float | None:
        """The most between two times of `time.monotonic`; None where nothing was seen."""
        found = [size for at, size in list(self._found) if since <= at <= until]
        return round(max(found) / 2**30, 2) if found else None

    def sample(self) -> None:
        """Look once."""
        if self._looks % LOOKS == 0:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._watched = [self._process, *self._process.children(recursive=True)]
        self._looks += 1
        total = 0
        for process in self._watched:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        if total:
            self._found.append((time.monotonic(), total))
