"""The open WebSockets, and which of them gives way to a new one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.websockets import WebSocket

PLAYS_S = 120.0
"""Who asked for a turn within so many seconds gives way to nobody else."""


@dataclass(eq=False, slots=True)
class Visitor:
    """An open WebSocket. peer: who shares its share; login: its cookie; played: when it last asked for a turn."""

    browser: WebSocket
    peer: str
    login: str
    played: float = -math.inf
    reader: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """End `ServerLink.carry`."""
        if self.reader is not None:
            self.reader.cancel()


class Visitors:
    """`open`: those who are there, oldest first; `most`: how many may be, half of them from one address."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: list[Visitor] = []

    def make_room(self, peer: str) -> bool:
        """Whether one more of this address may come.

        An address over its half loses the one of its own that played longest ago, or never. If all places are taken,
        that one of all leaves, unless it played within PLAYS_S.
        """
        mine = [one for one in self.open if one.peer == peer]
        leaving = None
        if peer and len(mine) >= max(1, self.most // 2):
            leaving = min(mine, key=lambda one: one.played)
        elif len(self.open) >= self.most:
            leaving = min(self.open, key=lambda one: one.played)
            if leaving.played > time.monotonic() - PLAYS_S:
                return False
        if leaving is not None:
            self.open.remove(leaving)
            leaving.leave()
        return True

    def log_out(self, login: str) -> None:
        """End the WebSockets of a login."""
        for one in self.open:
            if login and one.login == login:
                one.leave()

    @contextlib.contextmanager
    def holding(self, visitor: Visitor) -> Iterator[None]:
        """A visitor is there inside a `with`."""
        self.open.append(visitor)
        try:
            yield
        finally:
            if visitor in self.open:
                self.open.remove(visitor)
