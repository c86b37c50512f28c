"""How many descriptors the process may have, and what they are kept for."""

from __future__ import annotations

import contextlib
import sys

from animegamer_rt.errors import ServerError

RESERVED = 64
"""Descriptors kept free for starting a worker (about 10), files, and other sockets."""
PER_WORKER = 8
"""As many more for each further worker: its socket, its connection and its standard input."""
LEAST_CONNECTIONS = 16
"""With fewer, players would disconnect one another: the server refuses to start."""
MAX_DESCRIPTORS = 65_536
"""No higher limit is requested: starting a process may close every possible descriptor, one by one."""


def raise_limit(workers: int = 1) -> int:
    """Raise the soft limit to the hard one; returns how many descriptors the process may have.

    Raises ServerError if that is too few for these workers and some players.
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
        raise ServerError("the limit on open files is too low", found=had, expected=f"{least} or more", do=do)
    return had
