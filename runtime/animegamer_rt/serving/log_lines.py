"""A log on a stream that perhaps nobody reads: a full pipe would block the server, or the gateway and its pages."""

from __future__ import annotations

import logging
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

PIECE = 1000
"""Characters written at a time, in UTF-8 no more than the 4096 bytes for which a pipe that accepts any has room."""


class LinesWithoutWaiting(logging.StreamHandler):  # type: ignore[type-arg]  # takes none before Python 3.11
    """Drops lines while nobody reads the stream, and counts them."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._left_out = 0
        self._writable: Callable[[int], object] = lambda milliseconds: True
        if sys.platform != "win32":  # which cannot poll a pipe
            with suppress(OSError, ValueError):  # closed, or not a file
                poller = select.poll()
                poller.register(stream.fileno(), select.POLLOUT)
                self._writable = poller.poll

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, as far as the stream accepts it now."""
        try:
            line = self.format(record)
            if self._left_out:
                line += f" [{self._left_out} earlier lines were dropped because nobody read them]"
            line += self.terminator
            for start in range(0, len(line), PIECE):
                if not self._writable(0):
                    self._left_out += 1
                    return
                self.stream.write(line[start : start + PIECE])
                self.flush()
            self._left_out = 0
        except Exception:  # noqa: BLE001  as in the class that this extends
            self.handleError(record)
