"""The server's log on stderr: lines for people, or one JSON object per line for log collectors.

`extra=about(...)` adds what a line is about.
"""

from __future__ import annotations

import json
import logging
import select
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, TextIO

FORMATS = ("text", "json")
_ABOUT = "about"


def about(session: str, turn: int | None, seconds: float | None = None, worker: int | None = None) -> dict[str, Any]:
    """The `extra` of a line about a session's turn; seconds: its duration; worker: which of several played it."""
    taken = None if seconds is None else round(seconds, 3)
    fields = {"session": session, "turn": turn, "seconds": taken, "worker": worker}
    return {_ABOUT: {name: value for name, value in fields.items() if value is not None}}


def log_to_stderr(log_format: str) -> None:
    """Send this package's log to stderr, in one of FORMATS."""
    handler = LinesWithoutWaiting(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines("%(asctime)s %(levelname)s %(message)s"))
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


class TextLines(logging.Formatter):
    """`12:00:01 INFO turn done (session 5f0c, turn 3, seconds 0.61)`."""

    default_time_format = "%H:%M:%S"
    default_msec_format = ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, followed by what it is about."""
        known = ", ".join(f"{name} {value}" for name, value in _about(record).items())
        return super().formatMessage(record) + (f" ({known})" if known else "")


class JsonLines(logging.Formatter):
    """One object per line: `time` (ISO 8601, UTC), `level`, `event`; for a turn `session`, `turn`, `seconds`, `worker`.

    `traceback` is added for a caught fault. No object contains a line break.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The object as one line."""
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "event": record.getMessage(), **_about(record)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _about(record: logging.LogRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(record, _ABOUT, {})
    return found
