"""The open WebSockets, and which of them gives way to a new one."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.websockets import WebSocket

from animegamer_rt.serving.shares import FullError, Share, Worth

PLAYS_S = 120.0
"""Who asked for a turn within so many seconds gives way only to those with fewer WebSockets."""


@dataclass(eq=False, slots=True)
class Visitor:
    """An open WebSocket. peer: its address; login: its cookie; played: when it last asked for a turn."""

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
    """Those who are there; most: how many may be. On loopback all addresses look alike, so each has its own share."""

    def __init__(self, most: int) -> None:
        self._share = Share[Visitor](most)

    def __iter__(self) -> Iterator[Visitor]:
        return iter(self._share)

    def __len__(self) -> int:
        return self._share.total

    def enter(self, visitor: Visitor) -> bool:
        """Whether there is room for one more: if all places are taken, another may have to leave."""
        quiet_since = time.monotonic() - PLAYS_S
        for one in sorted(self._share, key=lambda one: one.played):
            self._set(one, Worth.USED if one.played > quiet_since else Worth.UNUSED)
        try:
            leaving = self._share.giver(visitor.peer or visitor)
        except FullError:
            return False
        if leaving is not None:
            self.left(leaving)
            leaving.leave()
        self._set(visitor, Worth.UNUSED)
        return True

    def left(self, visitor: Visitor) -> None:
        """It no longer takes a place."""
        self._share.drop(visitor)

    def log_out(self, login: str) -> None:
        """End the WebSockets of a login."""
        for one in self:
            if login and one.login == login:
                one.leave()

    def _set(self, visitor: Visitor, worth: Worth) -> None:
        self._share.set(visitor, visitor.peer or visitor, worth=worth)
