"""The client for asyncio: the same names as in `client`, to be awaited; many games may be played on one connection.

Waits in the event loop; the operations are in `base_client`. On Windows, ZeroMQ needs a selector event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from . import requests
from .base_client import CLOSE_TIMEOUT_S, BaseClient, BaseGame, BaseTurn, Steps
from .calls import Call
from .connection import Connection
from .errors import ClientError
from .events import Event
from .options import Keys
from .protocol_state import ProtocolState
from .responses import Exported, LoggedTurn, Welcome

T = TypeVar("T")


class AsyncConnection(Connection):
    """A connection in an event loop. The task holding the lock reads for all waiting tasks."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], state: ProtocolState, keys: Keys | None) -> None:
        super().__init__(context, state, keys)
        self.lock = asyncio.Lock()

    def start(self, call: Call[Any]) -> None:
        """Send a call. Does not touch the sockets while another task waits on them."""
        if self.lock.locked():
            self.state.start(call)
            self.send()
        else:
            super().start(call)

    async def poll(self) -> None:
        """Wait for a message, at most `state.poll_s` seconds, and process it. Only while holding the lock."""
        if self.advance():
            return
        poller, wait_s = zmq.asyncio.Poller(), self.state.poll_s
        # A socket's descriptor only reports changes. That suffices: `advance` has just found nothing to read.
        for socket in self.sockets:
            poller.register(socket.FD, zmq.POLLIN)
        if self.sockets:
            await poller.poll(round(1000 * wait_s))
        else:
            await asyncio.sleep(wait_s)
        self.advance()


class Client(BaseClient[AsyncConnection]):
    """One server, used with `async with` in one event loop.

    Options, methods and errors are those of `animegamer_client.Client`; the methods are awaited.
    """

    _connection_type = AsyncConnection
    _loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> Welcome:
        return await self._run(self._connect())

    async def open(
        self,
        *,
        seed: int | None = None,
        history_turns: int | None = None,
        resume: str | None = None,
        picture: str | os.PathLike[str] | bytes | None = None,
        motion: str | None = None,
    ) -> Game:
        return Game(self, await self._run(self._open(seed, history_turns, resume, picture, motion)))

    async def status(self) -> dict[str, Any]:
        return await self._run(self._ask_control(requests.status()))

    async def close(self) -> None:
        if self.closed or self._forked:
            return
        if self._loop not in (None, asyncio.get_running_loop()):  # its loop has ended, with every task in it
            self._close_sockets()
            return
        with contextlib.suppress(ClientError):  # another task has closed it meanwhile
            await self._run(self._wait_for_cancels(time.monotonic() + CLOSE_TIMEOUT_S))
        async with self._turns.lock, self._control.lock:
            self._close_sockets()

    def _check_open(self) -> None:
        super()._check_open()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise ClientError("the client belongs to another event loop", "create one in each event loop")

    async def _run(self, steps: Steps[T]) -> T:
        """Run an operation to its end, waiting as it requests."""
        while True:
            try:
                wait = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            connection = self._connection(wait)
            while not wait.over:
                async with connection.lock:
                    if not wait.over:  # the task with the lock may have read this call's answer
                        self._check_open()
                        await connection.poll()
                self._cancel_begun_turns(wait)


class Game(BaseGame):
    """One game. The methods are those of `animegamer_client.Game`, to be awaited; `cancel` from any task."""

    _client: Client

    def turn(self, instruction: str, *, turn_id: str | None = None, deadline_s: float | None = None) -> Turn:
        return Turn(self, requests.new_turn(self._session, instruction, turn_id, deadline_s))

    def replay(self, turn: int, *, after_seq: int = -1) -> Turn:
        return Turn(self, requests.replay(self._session, turn, after_seq))

    async def cancel(self) -> bool:
        return await self._client._run(self._client._ask_control(requests.cancel(self._session)))

    async def rewind(self, turn: int) -> None:
        await self._client._run(self._ask(requests.rewind(self._session, turn)))

    async def branch(self, turn: int, *, seed: int | None = None) -> Game:
        return Game(self._client, await self._client._run(self._ask(requests.branch(self._session, turn, seed))))

    async def log(self) -> list[LoggedTurn]:
        return await self._client._run(self._log())

    async def offers(self) -> tuple[str, ...]:
        return await self._client._run(self._offers())

    async def wish(self, instructions: Iterable[str]) -> tuple[str, ...]:
        return await self._client._run(self._ask(requests.wish(self._session, instructions)))

    async def export(self) -> Exported:
        return await self._client._run(self._ask(requests.export(self._session)))

    async def close(self) -> None:
        await self._client._run(self._ask(requests.close(self._session)))


class Turn(BaseTurn, AsyncIterator[Event]):
    """An asynchronous iterator over one turn's events. The turn is sent when the first event is requested.

    Leaving it early cancels the turn: `break`, the end of an `async with`, or cancelling the waiting task. After a
    `break`, a turn still held by a variable may be resumed; it is cancelled when the game's next turn is requested.
    Raises ServerRefused if the server ends the turn, TimedOut if it is silent.
    """

    _client: Client

    def __aiter__(self) -> AsyncIterator[Event]:
        return _Loop(self)

    async def __anext__(self) -> Event:
        try:
            with self._alone():
                event = await self._client._run(self._next())
        except asyncio.CancelledError:
            self._leave()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Turn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client._run(self._close())


class _Loop(AsyncIterator[Event]):
    """One loop over a turn's events. Python deletes it when the loop is left, even by `break`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def __anext__(self) -> Event:
        return await anext(self._turn)

    def __del__(self) -> None:
        self._turn._call.left = True
