"""Watches how much memory a process and its children take together."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType

import psutil

PAUSE_S = 0.2
"""Between two looks. A GiB of new memory takes about as long to be filled for the first time."""
LOOKS = 10
"""After so many looks new children are looked for, which reads every process of the machine."""


class MemoryWatch:
    """Adds up the resident memory of a process and all below it, five times a second, until the `with` ends.

    Pages of mapped files count while they are in memory, and pages that processes share count for each of them.
    """

    def __init__(self, process_id: int) -> None:
        self._process = psutil.Process(process_id)
        self._found: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def peak_gib(self, since: float = 0.0, until: float = float("inf")) -> float | None:
        """The most between two times of `time.monotonic`; None where nothing was seen."""
        found = [size for at, size in list(self._found) if since <= at <= until]
        return round(max(found) / 2**30, 2) if found else None

    def _look(self) -> None:
        looks, watched = 0, [self._process]
        while not self._ended.wait(PAUSE_S):
            if looks % LOOKS == 0:
                with contextlib.suppress(psutil.NoSuchProcess):
                    watched = [self._process, *self._process.children(recursive=True)]
            looks, total = looks + 1, 0
            for process in watched:
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            if total:
                self._found.append((time.monotonic(), total))
