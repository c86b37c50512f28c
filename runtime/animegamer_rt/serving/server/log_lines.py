"""The server's log on stderr: `12:00:01 INFO turn done (session 5f0c, turn 3, seconds 0.61)`."""

from __future__ import annotations

import logging
import select
import sys
from collections.abc import Callable
from typing import TextIO


def about(session: str, turn: int | None, seconds: float | None = None, worker: int | None = None) -> str:
    """What a line is about. seconds: a turn's duration; worker: which of several played it."""
    taken = None if seconds is None else round(seconds, 3)
    fields = {"session": session, "turn": turn, "seconds": taken, "worker": worker}
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)


def log_to_stderr() -> None:
    """Send this package's log to stderr."""
    handler = LinesWithoutWaiting(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger(__package__)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


class LinesWithoutWaiting(logging.StreamHandler):  # type: ignore[type-arg]  # takes none before Python 3.11
    """Drops lines while nobody reads the stream, and counts them: a full pipe would block the server."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._left_out = 0
        self._writable: Callable[[int], object] | None = None
        try:
            if sys.platform != "win32":  # which cannot poll a pipe
                poller = select.poll()
                poller.register(stream.fileno(), select.POLLOUT)
                self._writable = poller.poll
        except (OSError, ValueError):  # closed, or not a file
            self._writable = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line if the stream accepts one now."""
        if self._writable is not None and not self._writable(0):
            self._left_out += 1
            return
        if self._left_out:
            record = logging.makeLogRecord(vars(record) | {"args": (), "msg": record.getMessage()})
            record.msg += f" [{self._left_out} earlier lines were dropped because nobody read them]"
            self._left_out = 0
        super().emit(record)
