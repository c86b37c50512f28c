"""The server's log on stderr: lines for people, or one JSON object a line for a collector of logs.

Knows records of `logging`; nothing of turns. What a line is about comes with `extra=about(...)`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

FORMATS = ("text", "json")
_ABOUT = "about"


def about(session: str, turn: int | None, seconds: float | None = None, worker: int | None = None) -> dict[str, Any]:
    """The `extra` of a line about a session's turn; seconds: how long it took; worker: which of several played it."""
    taken = None if seconds is None else round(seconds, 3)
    fields = {"session": session, "turn": turn, "seconds": taken, "worker": worker}
    return {_ABOUT: {name: value for name, value in fields.items() if value is not None}}


def log_to_stderr(log_format: str) -> None:
    """Send the log of this package to stderr, in one of FORMATS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger(__package__)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


class TextLines(logging.Formatter):
    """`12:00:01 INFO turn done (session 5f0c, turn 3, seconds 0.61)`."""

    default_time_format = "%H:%M:%S"
    default_msec_format = ""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, followed by what it is about."""
        known = ", ".join(f"{name} {value}" for name, value in _about(record).items())
        return super().formatMessage(record) + (f" ({known})" if known else "")


class JsonLines(logging.Formatter):
    """One object a line: `time` (ISO 8601, UTC), `level`, `event`; of a turn `session`, `turn`, `seconds`, `worker`.

    `traceback` is added where a fault was caught. No line has a line break inside.
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
