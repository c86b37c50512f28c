"""Who is connected: what each client said at hello, and its outbox.

Knows connections; nothing of sessions, which outlive them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import zmq

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import CODES, Message

from .metrics import Metrics
from .send_queue import SendQueue

REMEMBERED = 4
"""Connections remembered for each one that may be open; a forgotten client is asked for hello again."""


@dataclass(frozen=True, slots=True)
class FrameOptions:
    """How a client wants its frames, chosen at hello."""

    pixel_format: str = "rgba32"
    flip: bool = False
    codec: str = "raw"
    jpeg_quality: int = 90
    clip: bool = False


@dataclass(slots=True, eq=False)
class Client:
    """One connection. `pictures` is None before its hello."""

    outbox: SendQueue
    metrics: Metrics
    pictures: FrameOptions | None = None

    def send(self, message: Message, delivery: str | None = None) -> None:
        """Send or keep a message; `delivery` names the turn whose frames are dropped together if it does not read."""
        self.outbox.send(message, delivery)

    def refuse(
        self, error: AnimeGamerError, parent: str | None = None, session: str | None = None, turn: int | None = None
    ) -> None:
        """Send an error."""
        code = error.code if error.code in CODES else "internal"
        self.metrics.error(code)
        fields: dict[str, Any] = {"code": code, "text": error.text, **({"do": error.do} if error.do else {})}
        self.send(Message("error", fields, parent=parent, session=session, turn=turn))


class Clients:
    """All connections by socket and routing id; the ones heard from longest ago are forgotten first."""

    def __init__(self, most: int, outbox_bytes: int, metrics: Metrics) -> None:
        self._most, self._outbox_bytes, self._metrics = REMEMBERED * most, outbox_bytes, metrics
        self._clients: OrderedDict[tuple[zmq.Socket[bytes], bytes], Client] = OrderedDict()

    def of(self, socket: zmq.Socket[bytes], routing: bytes) -> Client:
        """The client behind a routing id of a socket, new or known."""
        key = socket, routing
        client = self._clients.get(key)
        if client is None or client.outbox.gone:
            client = Client(SendQueue(socket, routing, self._outbox_bytes, self._metrics), self._metrics)
            self._clients[key] = client
            while len(self._clients) > self._most:
                self._clients.popitem(last=False)
        self._clients.move_to_end(key)
        return client

    def retry(self) -> bool:
        """Hand over what has become possible; whether anything still waits."""
        waiting = False
        for key, client in list(self._clients.items()):
            client.outbox.retry()
            waiting = waiting or client.outbox.waiting
            if client.outbox.gone:
                del self._clients[key]
        return waiting
