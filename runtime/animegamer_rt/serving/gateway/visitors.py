"""The open WebSockets, and which of them gives way to a new one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.websockets import WebSocket


@dataclass(eq=False, slots=True)
class Visitor:
    """An open WebSocket. peer: who shares its share; login: its cookie; played: it has asked for a turn."""

    browser: WebSocket
    peer: str
    login: str
    played: bool = False
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

        An address over its half loses its own oldest, unplayed first. If all places are taken, the oldest of those who
        have not played leaves.
        """
        mine = [one for one in self.open if one.peer == peer]
        leaving = None
        if peer and len(mine) >= max(1, self.most // 2):
            leaving = min(mine, key=lambda one: one.played)
        elif len(self.open) >= self.most:
            leaving = next((one for one in self.open if not one.played), None)
            if leaving is None:
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
