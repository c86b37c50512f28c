"""Saves visitors' games as clips for staff once the visitors are gone: the server renders them, one after the other.

Knows tokens of games; what is on the screen is the browser's.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence

from animegamer_rt.errors import AnimeGamerError

from .gateway_client import connected

WAITING = 32
"""Games that wait to be saved. Later ones are not saved; the server keeps their words as it does all others'."""

log = logging.getLogger(__name__)


class VisitorGames:
    """Saves in a thread of its own. port: of the gateway."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._queue: queue.Queue[str] = queue.Queue(WAITING)
        threading.Thread(target=self._save_all, daemon=True).start()

    def save(self, tokens: Sequence[str]) -> None:
        """Have these games exported and closed; returns at once."""
        for token in tokens:
            try:
                self._queue.put_nowait(token)
            except queue.Full:
                log.warning("a visitor's game is not saved: %d wait already", WAITING)

    def wait(self) -> None:
        """Until all of them are saved, or could not be."""
        self._queue.join()

    def _save_all(self) -> None:
        while True:
            token = self._queue.get()
            try:
                with connected(self._port) as client:
                    opened = client.ask("open", {"token": token}, "opened")
                    request, session = {"token": opened["fields"]["token"]}, opened["session"]
                    client.ask("export", request, "exported", session=session)
                    client.ask("close", request, "closed", session=session)
            except AnimeGamerError as error:
                log.warning("a visitor's game is not saved: %s", error)
            finally:
                self._queue.task_done()
