"""Connected clients: their options from `hello`, and the messages queued until they read.

Knows connections; not sessions, which outlive them, nor the meaning of messages. A slow client costs bounded memory and
delays nobody else. Beyond its own bound its turn's frames are dropped; beyond the bound of all clients, those of the
client with the most. The gap in `seq` tells it to replay.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zmq

from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.serving.shares import FullError, Share, Worth
from animegamer_rt.serving.wire.client_errors import client_text, without_folders
from animegamer_rt.serving.wire.codec import Message, encode, minor_version
from animegamer_rt.serving.wire.schema import CODES
from animegamer_rt.serving.wire.worker_messages import FrameOptions

from .metrics import Metrics
from .options import ServeOptions
from .sockets import ServerSockets

TURNS, CONTROL = "T", "C"
"""The two sockets, as the protocol's table names them."""
REMEMBERED_PER_CONNECTION = 4
"""Clients remembered per allowed connection. A forgotten client must send hello again."""
ROUND_S = 0.005
"""How long requests of one socket are handled before the other sockets get a turn. Some requests take milliseconds."""
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

    holder: who is charged for it (`shares`); None: the connection itself. refused: there is no room for it.
    connected: false once the connection is known to be lost. gone: a message could not be delivered; later ones are
    dropped.
    """

    def __init__(self, clients: Clients, socket: zmq.Socket[bytes], routing: bytes, holder: object = None) -> None:
        self.frame_options: FrameOptions | None = None
        self.minor, self.connected, self.gone, self.refused = 0, True, False, False
        self.routing, self.bytes = routing, 0
        self.holder: object = self if holder is None else holder
        self._socket, self._clients, self._metrics = socket, clients, clients.metrics
        self._queue: deque[_Queued] = deque()
        self._dropped: str | None = None

    @property
    def waiting(self) -> bool:
        """Whether a message is queued."""
        return bool(self._queue)

    def use(self) -> None:
        """It gets a job: connections that never had one make room before it."""
        self._clients.used(self)

    def send(self, message: Message, delivery: str | None = None) -> None:
        """Send, queue or drop a message, if the client's version has it.

        delivery: the turn whose frames are dropped together if the client does not read; None: no turn.
        """
        if self.gone or minor_version(message.type) > self.minor:
            return
        if message.buffers and delivery is not None and delivery == self._dropped:
            self._metrics.frames_dropped.inc()
            return
        parts = tuple(encode(message))
        queued = _Queued(parts, sum(len(part) for part in parts), delivery if message.buffers else None)
        if not self._queue and self._sent(queued):
            return
        size = queued.size + _OVERHEAD_BYTES
        if not self._clients.has_room(self, size):
            self.drop_frames(delivery)
            if queued.delivery is not None:
                self._metrics.frames_dropped.inc()
                return
        if self._clients.has_room(self, size):
            self._queue.append(queued)
            self._count(size)

    def send_error(
        self, error: AnimeGamerError, parent: str | None = None, session: str | None = None, turn: int | None = None
    ) -> None:
        """Send an error, without the server's paths."""
        code = error.code if error.code in CODES else "internal"
        self._metrics.errors.labels(code).inc()
        fields: dict[str, Any] = {"code": code, "text": client_text(error)}
        if error.do:
            fields["do"] = without_folders(error.do)
        if error.answer:
            fields["answer"] = list(error.answer)
        self.send(Message("error", fields, parent=parent, session=session, turn=turn))

    def retry(self) -> bool:
        """Send what the socket accepts now. Returns whether anything was sent."""
        before = len(self._queue)
        while self._queue and self._sent(self._queue[0]):
            self._count(-(self._queue.popleft().size + _OVERHEAD_BYTES))
        sent = len(self._queue) < before
        if self.gone:
            self._queue.clear()
            self._count(-self.bytes)
        return sent

    def _count(self, size: int) -> None:
        self.bytes += size
        self._clients.queued(self)

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
            self._clients.queued(self)
            return True
        self._metrics.bytes_sent.inc(queued.size)
        return True

    def drop_frames(self, delivery: str | None = None) -> None:
        """Drop all queued frames to make room for a message.

        Later frames of the same delivery are dropped too: the message's own turn or, for a message without a turn, the
        turn whose frames were queued last.
        """
        frames = [queued.delivery for queued in self._queue if queued.delivery is not None]
        self._dropped = delivery or (frames[-1] if frames else self._dropped)
        self._queue = deque(queued for queued in self._queue if queued.delivery is None)
        self._metrics.frames_dropped.inc(len(frames))
        self._count(sum(queued.size + _OVERHEAD_BYTES for queued in self._queue) - self.bytes)


class Clients:
    """The connections to both sockets, by routing id.

    When there are too many, lost connections to the turn socket are forgotten, longest silent first. Connections to the
    control socket are not remembered: none of its answers depends on an earlier message.
    """

    def __init__(self, sockets: ServerSockets, options: ServeOptions, metrics: Metrics) -> None:
        self._sockets, self.metrics = sockets, metrics
        self._max_bytes = int(options.send_queue_mib * 2**20)
        self._max_remembered = REMEMBERED_PER_CONNECTION * options.connections
        self._clients: OrderedDict[bytes, Client] = OrderedDict()
        self._control: dict[bytes, Client] = {}
        """Control connections with an answer not yet sent."""
        self._unsettled: set[Client] = set()
        """Clients with a queued message, and those just gone, so that the loop need not visit every client."""
        self._connected = Share[Client](options.connections)
        self._queued = Share[Client](int(options.send_queues_mib * 2**20))

    def requests(self, ready: set[zmq.Socket[bytes]]) -> Iterator[tuple[Client, str, list[bytes]]]:
        """Incoming requests: the client, the socket's name and the frames.

        The turn socket comes first: a cancel may be for a turn that arrived in the same round.
        """
        for socket, name in ((self._sockets.turns, TURNS), (self._sockets.control, CONTROL)):
            until = time.monotonic() + ROUND_S
            while socket in ready and time.monotonic() < until:
                try:
                    routing, frames, holder = self._sockets.receive(socket)
                except zmq.Again:
                    break
                yield self._on_turns(routing, holder) if name == TURNS else self._on_control(routing), name, frames

    def disconnected(self) -> Iterator[Client]:
        """Clients whose connection to the turn socket has ended, each once."""
        for routing in self._sockets.take_disconnected():
            client = self._clients.get(routing)
            if client is not None:
                client.connected = False
                self._connected.drop(client)
                yield client

    def retry(self) -> tuple[bool, bool]:
        """Send what the sockets accept now. Returns whether any message is still queued, and whether one was sent."""
        sent = False
        for client in list(self._unsettled):
            sent = client.retry() or sent
            if client.gone and self._clients.get(client.routing) is client:
                del self._clients[client.routing]
                self._connected.drop(client)
        self._unsettled.difference_update([client for client in self._unsettled if not client.waiting])
        if self._control:
            self._control = {key: one for key, one in self._control.items() if one.waiting}
        return bool(self._unsettled), sent

    def used(self, client: Client) -> None:
        """The connection has had a job: others make room before it."""
        if client in self._connected:
            self._connected.set(client, client.holder)

    def queued(self, client: Client) -> None:
        """What is queued for the client has changed, or it is gone."""
        self._unsettled.add(client)
        if client.bytes:
            self._queued.set(client, client.holder, client.bytes)
        else:
            self._queued.drop(client)

    def has_room(self, client: Client, size: int) -> bool:
        """Whether `size` more bytes may be queued for the client. Others with more lose their frames first."""
        if client.bytes + size > self._max_bytes:
            return False
        spared = {client}
        try:
            while (slowest := self._queued.giver(client.holder, size, spared)) is not None:
                slowest.drop_frames()
                spared.add(slowest)
        except FullError:
            return False
        return True

    def _on_turns(self, routing: bytes, holder: object) -> Client:
        client = self._clients.get(routing)
        if client is None or client.gone:
            client = self._clients[routing] = Client(self, self._sockets.turns, routing, holder)
            forgettable = [key for key, other in self._clients.items() if not (other.connected or other.waiting)]
            for key in forgettable[: max(0, len(self._clients) - self._max_remembered)]:
                del self._clients[key]
        client.connected = True
        self._clients.move_to_end(routing)
        if client not in self._connected:
            self._connect(client)
        return client

    def _connect(self, client: Client) -> None:
        """Count a connection; at the bound another one without a job is closed, or this one refused."""
        try:
            closed = self._connected.giver(client.holder)
        except FullError:
            client.refused, client.frame_options = True, None
            return
        if closed is not None:
            self._connected.drop(closed)
            self._sockets.disconnect(closed.routing)
            self.metrics.connections_closed.inc()
        client.refused = False
        self._connected.set(client, client.holder, worth=Worth.UNUSED)

    def _on_control(self, routing: bytes) -> Client:
        client = self._control.pop(routing, None) or Client(self, self._sockets.control, routing)
        self._control[routing] = client
        return client
