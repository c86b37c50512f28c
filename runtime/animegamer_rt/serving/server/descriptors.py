"""File descriptors of the server process: as many as the system allows, and some kept for a worker.

Knows the operating system's limit; nothing of sockets. Windows has no such limit.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from animegamer_rt.errors import ServerError

RESERVED = 64
"""Descriptors that connections may not use: for the worker's start (about 10), files, and other sockets."""
PER_WORKER = 8
"""As many more for each worker after the first: its socket, its connection and its standard input."""
LEAST_CONNECTIONS = 16
"""With fewer for connections, players would cut one another off: nothing is served then."""
KEPT = 16
"""Of these, as many are held open, so that they are there when the worker has to be started again."""
MAX_DESCRIPTORS = 65_536
"""A higher limit is not asked for: what starts a process may close every possible descriptor, one after the other."""


def raise_limit(workers: int = 1) -> int:
    """Raise the soft limit to the hard one. Returns how many descriptors the process may have.

    Raises ServerError if that is too few for so many workers and some players.
    """
    if sys.platform == "win32":
        return MAX_DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    had = MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    least = RESERVED + PER_WORKER * (workers - 1) + LEAST_CONNECTIONS
    if had < least:
        do = "raise the limit: ulimit -Hn, or LimitNOFILE= of the unit"
        raise ServerError("too few files may be open", found=had, expected=f"{least} or more", do=do)
    return had


class KeptDescriptors:
    """Descriptors held open for a worker's start."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._fill()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Within, they are free. Afterwards as many are held again as there are."""
        while self._held:
            os.close(self._held.pop())
        try:
            yield
        finally:
            self._fill()

    def _fill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._held) < KEPT:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
