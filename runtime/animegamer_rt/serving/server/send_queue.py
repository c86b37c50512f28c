"""One client's outgoing messages: sent at once, or queued, up to a number of bytes, until the client reads.

Knows one routing id of a ROUTER socket; nothing of what messages mean. A client that does not read costs memory up to
that bound and delays nobody else. Beyond it, the frames of its turn are dropped; the gap in `seq` tells it to replay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import zmq

from animegamer_rt.serving.wire import Message, encode

from .metrics import Metrics

_OVERHEAD_BYTES = 256
"""Counted for every queued message beside its content, so that small ones are bounded, too."""


@dataclass(frozen=True, slots=True)
class _Queued:
    parts: tuple[bytes | memoryview, ...]
    size: int
    delivery: str | None


class SendQueue:
    """`gone`: the client has disconnected; what is sent to it is dropped.

    unsettled: where it puts itself once a message is queued or the client is gone, so that not all clients have to be
    looked at in each round of the server's loop.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], routing: bytes, max_bytes: int, metrics: Metrics, unsettled: set[SendQueue]
    ) -> None:
        self._socket, self.routing, self._max_bytes, self._metrics = socket, routing, max_bytes, metrics
        self._unsettled = unsettled
        self._queue: deque[_Queued] = deque()
        self._dropped: str | None = None
        self.bytes = 0
        self.gone = False

    @property
    def waiting(self) -> bool:
        """Whether a message is queued."""
        return bool(self._queue)

    def send(self, message: Message, delivery: str | None = None) -> None:
        """Send, queue or drop a message. `delivery` names the turn whose frames are dropped together; None: no turn."""
        if self.gone:
            return
        if message.buffers and delivery is not None and delivery == self._dropped:
            self._metrics.frames_dropped(1)
            return
        parts = tuple(encode(message))
        queued = _Queued(parts, sum(len(part) for part in parts), delivery if message.buffers else None)
        if not self._queue and self._sent(queued):
            return
        if self.bytes + queued.size + _OVERHEAD_BYTES > self._max_bytes:
            self._drop_frames(delivery)
            if queued.delivery is not None:
                self._metrics.frames_dropped(1)
                return
        if self.bytes + queued.size + _OVERHEAD_BYTES <= self._max_bytes:
            self._queue.append(queued)
            self._unsettled.add(self)
            self.bytes += queued.size + _OVERHEAD_BYTES

    def retry(self) -> bool:
        """Send what the socket takes now. Returns whether anything was sent."""
        before = len(self._queue)
        while self._queue and self._sent(self._queue[0]):
            self.bytes -= self._queue.popleft().size + _OVERHEAD_BYTES
        sent = len(self._queue) < before
        if self.gone:
            self._queue.clear()
            self.bytes = 0
        return sent

    def _sent(self, queued: _Queued) -> bool:
        """Try to send. False: the socket is full, so the message has to be queued."""
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
        self._metrics.sent(queued.size)
        return True

    def _drop_frames(self, delivery: str | None) -> None:
        """Drop all queued frames, to make room for a message.

        Later frames of the same delivery are dropped, too: those of the message's turn, or, for a message that belongs
        to no turn, those of the turn whose frames were queued last.
        """
        frames = [queued.delivery for queued in self._queue if queued.delivery is not None]
        self._dropped = delivery or (frames[-1] if frames else self._dropped)
        self._queue = deque(queued for queued in self._queue if queued.delivery is None)
        self._metrics.frames_dropped(len(frames))
        self.bytes = sum(queued.size + _OVERHEAD_BYTES for queued in self._queue)
