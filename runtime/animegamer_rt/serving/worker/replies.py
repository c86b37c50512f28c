"""Makes the messages that answer one job.

Knows the job's message; nothing of sockets nor of how a job is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from animegamer_rt.serving.wire import Buffer, Message
from animegamer_rt.serving.wire.worker_messages import HEARTBEAT, Reply


class ReplyBuilder:
    """Puts the job's session, turn and id on each message, and numbers those that go on to the client.

    `seq` is the number that a client sees. 0 is the server's own `accepted` and the last one its `done`, so the worker
    begins at 1. It has nothing to do with `events.Event.sequence`, which numbers what the pipeline yields.
    """

    def __init__(self, job: Message) -> None:
        self._job, self._seq = job, count(1)

    def event(self, type: str, fields: Mapping[str, Any], *buffers: Buffer) -> Message:
        """A message that goes on to the client."""
        return self._make(type, fields, buffers, next(self._seq))

    def unnumbered(self, type: str, fields: Mapping[str, Any]) -> Message:
        """A message that goes on to the client and is not one of the turn's numbered events."""
        return self._make(type, fields, (), None)

    def progress(self, step: int, steps: int, seconds_left: float) -> Message:
        """The event that says how far the job is."""
        return self.event("progress", {"step": step, "steps": steps, "seconds_left": seconds_left})

    def to_server(self, reply: Reply) -> Message:
        """A message for the server only."""
        return self._make(reply.TYPE, reply.to_fields(), reply.buffers(), None)

    def heartbeat(self) -> Message:
        """A message that says nothing but that the job still runs."""
        return self._make(HEARTBEAT, {}, (), None)

    def _make(self, type: str, fields: Mapping[str, Any], buffers: tuple[Buffer, ...], seq: int | None) -> Message:
        job = self._job
        return Message(type, fields, parent=job.id, session=job.session, turn=job.turn, seq=seq, buffers=buffers)
