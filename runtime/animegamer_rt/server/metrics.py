"""What the front counts: turns, seconds by stage, errors by code, bytes, restarts.

Knows numbers; nothing of who shows them.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Mapping

STAGES = ("queue", "predictor", "denoiser", "vae", "total")
REMEMBERED_TURNS = 100


class Metrics:
    """Counters of one run of the server; medians are of the last 100 turns."""

    def __init__(self) -> None:
        self.turns_done = 0
        self.worker_restarts = 0
        self.bytes_sent = 0
        self.errors: Counter[str] = Counter()
        self._seconds: deque[Mapping[str, float]] = deque(maxlen=REMEMBERED_TURNS)

    def turn_done(self, seconds: Mapping[str, float]) -> None:
        """A turn was finished and kept; `seconds` by stage, with `queue`."""
        self.turns_done += 1
        self._seconds.append(dict(seconds))

    def error(self, code: str) -> None:
        """An error was sent to a client."""
        self.errors[code] += 1

    def worker_restarted(self) -> None:
        """The worker died and will be started again."""
        self.worker_restarts += 1

    def sent(self, size: int) -> None:
        """So many bytes were handed to a client's socket."""
        self.bytes_sent += size

    def load(self, queue: int, running: int, sessions: int, connections: int) -> None:
        """How full the server is now; told about once a second."""
        self.now = {"queue": queue, "running": running, "sessions": sessions, "connections": connections}

    def medians(self) -> dict[str, float]:
        """Median seconds by stage; empty before the first turn."""
        if not self._seconds:
            return {}
        return {stage: statistics.median(turn.get(stage, 0.0) for turn in self._seconds) for stage in STAGES}
