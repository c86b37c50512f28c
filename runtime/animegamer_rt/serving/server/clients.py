"""Connected clients: what each asked for at hello, and its send queue.

Knows connections; nothing of sessions, which outlive them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import zmq

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import CODES, Message, minor_version
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.worker_messages import FrameOptions

from .metrics import Metrics
from .send_queue import SendQueue

REMEMBERED_PER_CONNECTION = 4
"""Clients remembered for each connection that may be open. A forgotten client is asked for hello again."""


@dataclass(slots=True, eq=False)
class Client:
    """One connection. `frame_options` is None before its hello. minor: the minor version of the protocol it speaks."""

    send_queue: SendQueue
    metrics: Metrics
    frame_options: FrameOptions | None = None
    minor: int = 0

    def send(self, message: Message, delivery: str | None = None) -> None:
        """Send or queue a message, if the client's version has it.

        `delivery` names the turn whose frames are dropped together if the client does not read.
        """
        if minor_version(message.type) <= self.minor:
            self.send_queue.send(message, delivery)

    def send_error(
        self, error: AnimeGamerError, parent: str | None = None, session: str | None = None, turn: int | None = None
    ) -> None:
        """Send an error. The client gets none of the server's paths."""
        code = error.code if error.code in CODES else "internal"
        self.metrics.error(code)
        fields: dict[str, Any] = {"code": code, "text": client_text(error)}
        if error.do:
            fields["do"] = without_folders(error.do)
        self.send(Message("error", fields, parent=parent, session=session, turn=turn))


class Clients:
    """All connections, by socket and routing id. The ones that were silent for longest are forgotten first."""

    def __init__(self, max_connections: int, send_queue_bytes: int, metrics: Metrics) -> None:
        self._max_remembered = REMEMBERED_PER_CONNECTION * max_connections
        self._send_queue_bytes, self._metrics = send_queue_bytes, metrics
        self._clients: OrderedDict[tuple[zmq.Socket[bytes], bytes], Client] = OrderedDict()

    def get_or_add(self, socket: zmq.Socket[bytes], routing: bytes) -> Client:
        """The client behind a routing id of a socket."""
        key = socket, routing
        client = self._clients.get(key)
        if client is None or client.send_queue.gone:
            client = Client(SendQueue(socket, routing, self._send_queue_bytes, self._metrics), self._metrics)
            self._clients[key] = client
            while len(self._clients) > self._max_remembered:
                self._clients.popitem(last=False)
        self._clients.move_to_end(key)
        return client

    def retry(self) -> bool:
        """Send what the sockets take now. Returns whether any message is still queued."""
        waiting = False
        for key, client in list(self._clients.items()):
            client.send_queue.retry()
            waiting = waiting or client.send_queue.waiting
            if client.send_queue.gone:
                del self._clients[key]
        return waiting
