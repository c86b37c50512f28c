"""The clock of every time-out in the server: time in which the server itself did not run does not count.

After a pause of the machine (SIGSTOP, `docker pause`, a snapshot) or a long system call, workers and clients look
silent although only the server was. It reads its sockets before it holds that silence against anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_STEP_S = 1.0
"""Only this much of a longer time between two readings counts; the server's loop reads it four times a second."""


class AwakeClock:
    """Call it for seconds that never run backwards, like `time.monotonic`, without the time slept between two calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_at = self._now = clock()

    def __call__(self) -> float:
        read_at = self._clock()
        self._now += min(read_at - self._read_at, MAX_STEP_S)
        self._read_at = read_at
        return self._now
