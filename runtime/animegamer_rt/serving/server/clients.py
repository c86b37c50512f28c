"""Connected clients: their options from `hello`, and the messages queued until they read.

Knows connections; not sessions, which outlive them, nor the meaning of messages. A slow client costs bounded memory and
delays nobody else. Beyond the bound its turn's frames are dropped; the gap in `seq` tells it to replay.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zmq

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.wire import CODES, Message, encode, minor_version
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.worker_messages import FrameOptions

from .metrics import Metrics
from .sockets import ServerSockets

TURNS, CONTROL = "T", "C"
"""The two sockets, as the protocol's table names them."""
REMEMBERED_PER_CONNECTION = 4
"""Clients remembered per allowed connection. A forgotten client must send hello again."""
REQUESTS_PER_ROUND = 32
"""Requests read from one socket before the other sockets get a turn."""
_OVERHEAD_BYTES = 256
"""Counted per queued message on top of its frames."""


@dataclass(frozen=True, slots=True)
class _Queued:
    """An encoded message. delivery: of a message with buffers, the turn whose frames are dropped together."""

    parts: tuple[bytes | memoryview, ...]
    size: int
    delivery: str | None


class Client:
    """One connection. `frame_options` is None before its hello. minor: the protocol's minor version that it speaks.

    connected: false once the connection is known to be lost. gone: a message could not be delivered; later ones are
    dropped. unsettled: a shared set that this client joins when it queues a message or is gone, so that the server's
    loop need not visit every client.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], routing: bytes, max_bytes: int, metrics: Metrics, unsettled: set[Client]
    ) -> None:
        self.frame_options: FrameOptions | None = None
        self.minor, self.connected, self.gone = 0, True, False
        self.routing, self.bytes = routing, 0
        self._socket, self._max_bytes, self._metrics, self._unsettled = socket, max_bytes, metrics, unsettled
        self._queue: deque[_Queued] = deque()
        self._dropped: str | None = None

    @property
    def waiting(self) -> bool:
        """Whether a message is queued."""
        return bool(self._queue)

    def send(self, message: Message, delivery: str | None = None) -> None:
        """Send, queue or drop a message, if the client's version has it.

        delivery: the turn whose frames are dropped together if the client does not read; None: no turn.
        """
        if self.gone or minor_version(message.type) > self.minor:
            return
        if message.buffers and delivery is not None and delivery == self._dropped:
            self._metrics.count("frames_dropped")
            return
        parts = tuple(encode(message))
        queued = _Queued(parts, sum(len(part) for part in parts), delivery if message.buffers else None)
        if not self._queue and self._sent(queued):
            return
        if self.bytes + queued.size + _OVERHEAD_BYTES > self._max_bytes:
            self._drop_frames(delivery)
            if queued.delivery is not None:
                self._metrics.count("frames_dropped")
                return
        if self.bytes + queued.size + _OVERHEAD_BYTES <= self._max_bytes:
            self._queue.append(queued)
            self._unsettled.add(self)
            self.bytes += queued.size + _OVERHEAD_BYTES

    def send_error(
        self, error: AnimeGamerError, parent: str | None = None, session: str | None = None, turn: int | None = None
    ) -> None:
        """Send an error, without the server's paths."""
        code = error.code if error.code in CODES else "internal"
        self._metrics.error(code)
        fields: dict[str, Any] = {"code": code, "text": client_text(error)}
        if error.do:
            fields["do"] = without_folders(error.do)
        self.send(Message("error", fields, parent=parent, session=session, turn=turn))

    def retry(self) -> bool:
        """Send what the socket accepts now. Returns whether anything was sent."""
        before = len(self._queue)
        while self._queue and self._sent(self._queue[0]):
            self.bytes -= self._queue.popleft().size + _OVERHEAD_BYTES
        sent = len(self._queue) < before
        if self.gone:
            self._queue.clear()
            self.bytes = 0
        return sent

    def _sent(self, queued: _Queued) -> bool:
        """Try to send. False: the socket is full, and the message must be queued."""
        try:
            self._socket.send_multipart([self.routing, *queued.parts], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.gone = True
            self._unsettled.add(self)
            return True
        self._metrics.count("bytes_sent", queued.size)
        return True

    def _drop_frames(self, delivery: str | None) -> None:
        """Drop all queued frames to make room for a message.

        Later frames of the same delivery are dropped too: the message's own turn or, for a message without a turn, the
        turn whose frames were queued last.
        """
        frames = [queued.delivery for queued in self._queue if queued.delivery is not None]
        self._dropped = delivery or (frames[-1] if frames else self._dropped)
        self._queue = deque(queued for queued in self._queue if queued.delivery is None)
        self._metrics.count("frames_dropped", len(frames))
        self.bytes = sum(queued.size + _OVERHEAD_BYTES for queued in self._queue)


class Clients:
    """The connections to both sockets, by routing id.

    When there are too many, lost connections to the turn socket are forgotten, longest silent first. Connections to the
    control socket are not remembered: none of its answers depends on an earlier message.
    """

    def __init__(self, sockets: ServerSockets, max_connections: int, send_queue_bytes: int, metrics: Metrics) -> None:
        self._sockets, self._send_queue_bytes, self._metrics = sockets, send_queue_bytes, metrics
        self._max_remembered = REMEMBERED_PER_CONNECTION * max_connections
        self._clients: OrderedDict[bytes, Client] = OrderedDict()
        self._control: dict[bytes, Client] = {}
        """Control connections with an answer not yet sent."""
        self._unsettled: set[Client] = set()

    def requests(self, ready: set[zmq.Socket[bytes]]) -> Iterator[tuple[Client, str, list[bytes]]]:
        """Incoming requests: the client, the socket's name and the frames.

        The turn socket comes first: a cancel may be for a turn that arrived in the same round.
        """
        for socket, name in ((self._sockets.turns, TURNS), (self._sockets.control, CONTROL)):
            for _ in range(REQUESTS_PER_ROUND if socket in ready else 0):
                try:
                    routing, *frames = self._sockets.receive(socket)
                except zmq.Again:
                    break
                yield self._on_turns(routing) if name == TURNS else self._on_control(routing), name, frames

    def disconnected(self) -> Iterator[Client]:
        """Clients whose connection to the turn socket has ended, each once."""
        for routing in self._sockets.take_disconnected():
            client = self._clients.get(routing)
            if client is not None:
                client.connected = False
                yield client

    def retry(self) -> tuple[bool, bool]:
        """Send what the sockets accept now. Returns whether any message is still queued, and whether one was sent."""
        sent = False
        for client in list(self._unsettled):
            sent = client.retry() or sent
            if client.gone and self._clients.get(client.routing) is client:
                del self._clients[client.routing]
        self._unsettled.difference_update([client for client in self._unsettled if not client.waiting])
        if self._control:
            self._control = {key: one for key, one in self._control.items() if one.waiting}
        return bool(self._unsettled), sent

    def _on_turns(self, routing: bytes) -> Client:
        client = self._clients.get(routing)
        if client is None or client.gone:
            client = self._clients[routing] = self._make(self._sockets.turns, routing)
            forgettable = [key for key, other in self._clients.items() if not (other.connected or other.waiting)]
            for key in forgettable[: max(0, len(self._clients) - self._max_remembered)]:
                del self._clients[key]
        client.connected = True
        self._clients.move_to_end(routing)
        return client

    def _on_control(self, routing: bytes) -> Client:
        client = self._control.pop(routing, None) or self._make(self._sockets.control, routing)
        self._control[routing] = client
        return client

    def _make(self, socket: zmq.Socket[bytes], routing: bytes) -> Client:
        return Client(socket, routing, self._send_queue_bytes, self._metrics, self._unsettled)
