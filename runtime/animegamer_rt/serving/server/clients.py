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
    """One connection. `frame_options` is None before its hello. minor: the minor version of the protocol it speaks.

    `connected` is false once it is known to be gone.
    """

    send_queue: SendQueue
    metrics: Metrics
    frame_options: FrameOptions | None = None
    minor: int = 0
    connected: bool = True

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
    """The connections to the turn socket, by routing id.

    Those that are gone are forgotten when there are too many, the ones that were silent for longest first. A connection
    to the control socket is not remembered: nothing that it is answered depends on an earlier message.
    """

    def __init__(self, max_connections: int, send_queue_bytes: int, metrics: Metrics) -> None:
        self._max_remembered = REMEMBERED_PER_CONNECTION * max_connections
        self._send_queue_bytes, self._metrics = send_queue_bytes, metrics
        self._clients: OrderedDict[bytes, Client] = OrderedDict()
        self._control: dict[bytes, Client] = {}
        """Control connections with an answer that they have not taken yet."""
        self._unsettled: set[SendQueue] = set()
        """Queues with a message, and those whose client is gone."""

    def get_or_add(self, socket: zmq.Socket[bytes], routing: bytes) -> Client:
        """The client behind a routing id of the turn socket."""
        client = self._clients.get(routing)
        if client is None or client.send_queue.gone:
            client = self._clients[routing] = self._make(socket, routing)
            forgettable = [
                key for key, other in self._clients.items() if not (other.connected or other.send_queue.waiting)
            ]
            for key in forgettable[: max(0, len(self._clients) - self._max_remembered)]:
                del self._clients[key]
        client.connected = True
        self._clients.move_to_end(routing)
        return client

    def for_control(self, socket: zmq.Socket[bytes], routing: bytes) -> Client:
        """The client behind a routing id of the control socket, for one request."""
        client = self._control.pop(routing, None) or self._make(socket, routing)
        self._control[routing] = client
        return client

    def disconnected(self, routing: bytes) -> Client | None:
        """Note that a connection to the turn socket is gone. Returns its client, if it is known."""
        client = self._clients.get(routing)
        if client is not None:
            client.connected = False
        return client

    def retry(self) -> tuple[bool, bool]:
        """Send what the sockets take now. Returns whether any message is still queued, and whether one was sent."""
        sent = False
        for queue in list(self._unsettled):
            sent = queue.retry() or sent
            if queue.gone and queue.routing in self._clients and self._clients[queue.routing].send_queue is queue:
                del self._clients[queue.routing]
        self._unsettled.difference_update([queue for queue in self._unsettled if not queue.waiting])
        if self._control:
            self._control = {key: one for key, one in self._control.items() if one.send_queue.waiting}
        return bool(self._unsettled), sent

    def _make(self, socket: zmq.Socket[bytes], routing: bytes) -> Client:
        return Client(SendQueue(socket, routing, self._send_queue_bytes, self._metrics, self._unsettled), self._metrics)
