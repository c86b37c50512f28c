"""Builds the replies to one job."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from animegamer_rt.serving.wire.codec import Buffer, Message
from animegamer_rt.serving.wire.worker_messages import HEARTBEAT, Reply


class ReplyBuilder:
    """Puts the job's session, turn and id on each message, and numbers those for the client.

    `seq` is the number that a client sees. The server's own `accepted` is 0 and its `done` is last, so the worker
    starts at 1. It is unrelated to `events.Event.sequence`, which numbers what the pipeline yields.
    """

    def __init__(self, job: Message) -> None:
        self._job, self._seq = job, count(1)

    def event(self, type: str, fields: Mapping[str, Any], *buffers: Buffer) -> Message:
        """A message for the client."""
        return self._make(type, fields, buffers, next(self._seq))

    def unnumbered(self, type: str, fields: Mapping[str, Any]) -> Message:
        """A message for the client that is not one of the turn's numbered events."""
        return self._make(type, fields, (), None)

    def progress(self, step: int, steps: int, seconds_left: float) -> Message:
        """The job's progress event."""
        return self.event("progress", {"step": step, "steps": steps, "seconds_left": seconds_left})

    def to_server(self, reply: Reply) -> Message:
        """A message for the server only."""
        return self._make(reply.TYPE, reply.to_fields(), (), None)

    def heartbeat(self) -> Message:
        """A message that only shows that the job still runs."""
        return self._make(HEARTBEAT, {}, (), None)

    def _make(self, type: str, fields: Mapping[str, Any], buffers: tuple[Buffer, ...], seq: int | None) -> Message:
        job = self._job
        return Message(type, fields, parent=job.id, session=job.session, turn=job.turn, seq=seq, buffers=buffers)
