"""One client's messages on their way out: handed to its socket at once, or kept, bounded in bytes, until it reads.

Knows one routing id of a ROUTER; nothing of what messages mean. A reader that stalls costs memory up to its own bound,
and nobody else anything: beyond it, the turn's frames that it has not read are dropped, and the gap in `seq` tells it
to replay.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import zmq

from animegamer_rt.serving.wire import Message, encode

from .metrics import Metrics

_OVERHEAD_BYTES = 256
"""Counted beside its content for every message kept, so that small ones are bounded too."""


@dataclass(frozen=True, slots=True)
class _Kept:
    parts: tuple[bytes | memoryview, ...]
    size: int
    delivery: str | None


class SendQueue:
    """`gone` once the client is: the socket has no such peer any more, and what is sent is dropped."""

    def __init__(self, socket: zmq.Socket[bytes], routing: bytes, most_bytes: int, metrics: Metrics) -> None:
        self._socket, self._routing, self._most_bytes, self._metrics = socket, routing, most_bytes, metrics
        self._kept: deque[_Kept] = deque()
        self._dropped: str | None = None
        self.bytes = 0
        self.gone = False

    @property
    def waiting(self) -> bool:
        """Whether something is kept for the client."""
        return bool(self._kept)

    def send(self, message: Message, delivery: str | None = None) -> None:
        """Send, keep or drop. `delivery`: names the frames that are dropped together, if the message is of a turn."""
        if self.gone:
            return
        if message.buffers and delivery is not None and delivery == self._dropped:
            self._metrics.frames_dropped(1)
            return
        parts = tuple(encode(message))
        kept = _Kept(parts, sum(len(part) for part in parts), delivery if message.buffers else None)
        if not self._kept and self._sent(kept):
            return
        if self.bytes + kept.size + _OVERHEAD_BYTES > self._most_bytes:
            self._drop_frames(delivery)
            if kept.delivery is not None:
                self._metrics.frames_dropped(1)
                return
        if self.bytes + kept.size + _OVERHEAD_BYTES <= self._most_bytes:
            self._kept.append(kept)
            self.bytes += kept.size + _OVERHEAD_BYTES

    def retry(self) -> None:
        """Hand over what the socket takes now."""
        while self._kept and self._sent(self._kept[0]):
            self.bytes -= self._kept.popleft().size + _OVERHEAD_BYTES
        if self.gone:
            self._kept.clear()
            self.bytes = 0

    def _sent(self, kept: _Kept) -> bool:
        """Whether the message needs no keeping: the socket took it, or there is nobody to take it."""
        try:
            self._socket.send_multipart([self._routing, *kept.parts], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.gone = True
            return True
        self._metrics.sent(kept.size)
        return True

    def _drop_frames(self, delivery: str | None) -> None:
        """Make room for a message of this delivery; or of none: then the turn whose frames came last has lost some."""
        frames = [kept.delivery for kept in self._kept if kept.delivery is not None]
        self._dropped = delivery or (frames[-1] if frames else self._dropped)
        self._kept = deque(kept for kept in self._kept if kept.delivery is None)
        self._metrics.frames_dropped(len(frames))
        self.bytes = sum(kept.size + _OVERHEAD_BYTES for kept in self._kept)
