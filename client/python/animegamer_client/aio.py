"""The client for asyncio: the same names as in `client`, to be awaited; many games may be played on one connection.

Knows how to wait in an event loop. On Windows, ZeroMQ needs a selector event loop there.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

import zmq
import zmq.asyncio

from . import requests
from .answers import Exported, LoggedTurn, Seat, Welcome
from .calls import Call, LeftEarly, TurnCall
from .client import LAST_WORDS_S
from .connection import Connection, shut
from .errors import ClientError
from .events import Event
from .link import Link
from .options import Options, addresses, read_keys
from .standing import Standing

T = TypeVar("T")


class Client:
    """One server; the options are those of `animegamer_client.Client`. Use it with `async with`, in one event loop.

    Raises ValueError for options that do not exist and a timeout_s that is not above 0.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 30.0,
        pixel_format: str = "rgb24",
        flip: bool = False,
        codec: str = "raw",
        jpeg_quality: int = 90,
        clip: bool = False,
        server_key: str | os.PathLike[str] | None = None,
        client_keys: str | os.PathLike[str] | None = None,
    ) -> None:
        turns, control = addresses(address)
        hello = Options(pixel_format, flip, codec, jpeg_quality, clip).hello()
        keys = read_keys(server_key, client_keys)
        turn_link, control_link = Link(turns, timeout_s, hello), Link(control, timeout_s, None)
        self.address, self.timeout_s = turns, timeout_s
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._turns = Lane(Connection(context, turn_link, keys))
        self._control = Lane(Connection(context, control_link, keys))
        self._last_words: list[Call[bool]] = []
        self._left_early = LeftEarly()
        self._shut = weakref.finalize(self, shut, context, self._turns.connection, self._control.connection)

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._shut.alive

    async def connect(self) -> Welcome:
        """Greet the server; every other call does it when needed. Raises ClientError, as every call here does."""
        await self.ask(requests.ping())
        assert self._turns.connection.link.welcome is not None
        return self._turns.connection.link.welcome

    async def open(
        self, *, seed: int | None = None, history_turns: int | None = None, resume: str | None = None
    ) -> Game:
        """A new game, or with `resume` (a game's token) one that was played before, on any connection."""
        call = requests.open_new(seed, history_turns) if resume is None else requests.open_again(resume)
        return Game(self, await self.ask(call))

    async def status(self) -> dict[str, Any]:
        """How the server is: the fields of `status` in PROTOCOL.md."""
        return await self.ask_control(requests.status())

    async def ping(self) -> float:
        """Seconds to the server and back."""
        start = time.perf_counter()
        await self.ask_control(requests.ping())
        return time.perf_counter() - start

    async def close(self) -> None:
        """Hang up. The games stay on the server: open(resume=token) goes on with them."""
        if self.closed:
            return
        until = time.monotonic() + LAST_WORDS_S
        async with self._turns.lock, self._control.lock:
            while any(not call.ended for call in self._last_words) and time.monotonic() < until:
                await self._control.wait()
            self._shut()

    # -- what games use

    async def ask(self, call: Call[T]) -> T:
        """Wait for a call's answer."""
        self.follow(call)
        await self.wait(call)
        return call.result()

    def follow(self, call: Call[Any]) -> None:
        """Send a call without waiting."""
        self._check_open()
        self._turns.start(call)

    async def wait(self, call: Call[Any]) -> None:
        """Wait until there is something of a call to take."""
        await self._wait(self._turns, call)

    async def ask_control(self, call: Call[T]) -> T:
        """Wait for a call's answer on the control connection, which no frames hold up."""
        self._check_open()
        self._control.start(call)
        await self._wait(self._control, call)
        return call.result()

    def leave(self, call: TurnCall) -> None:
        """Cancel a turn that nobody reads on, without waiting."""
        call.abandon()
        self._left_early.add(call)
        self._say_cancel(call)

    async def hear_out(self) -> None:
        """Wait for what the server says to the cancels of turns that were left: one on its way may stop the next."""
        for call in self._last_words:
            await self._wait(self._control, call)

    def _say_cancel(self, turn: TurnCall) -> None:
        if not self.closed:
            call = requests.cancel(turn.place)
            self._last_words = [other for other in self._last_words if not other.ended] + [call]
            self._control.start(call)

    async def _wait(self, lane: Lane, call: Call[Any]) -> None:
        while not call.ready:
            async with lane.lock:
                # Whoever waited for the lock may have been brought its message by the task that held it.
                if not call.ready:
                    self._check_open()
                    await lane.wait()
                    for turn in self._left_early.begun():
                        self._say_cancel(turn)

    def _check_open(self) -> None:
        if self.closed:
            raise ClientError("the client is closed", "make another one; the game goes on with open(resume=token)")


class Game(Standing):
    """One game. `cancel` may come from any task."""

    def __init__(self, client: Client, seat: Seat) -> None:
        super().__init__(seat)
        self._client = client
        self._followed: list[TurnCall] = []

    def turn(self, instruction: str, *, turn_id: str | None = None, deadline_s: float | None = None) -> Turn:
        """Play the next turn: an asynchronous iterator of its events. Leaving the loop early cancels the turn.

        With a turn_id of its own, sending the same turn twice, even from another process, plays it once.
        """
        return self._follow(requests.new_turn(self._seat, instruction, turn_id, deadline_s))

    def replay(self, turn: int, *, after_seq: int = -1) -> Turn:
        """The events of a finished turn again, the same to the last bit; or what is to come of the running one."""
        return self._follow(requests.replay(self._seat, turn, after_seq))

    async def cancel(self) -> bool:
        """Stop the running turn: its iterator raises ServerRefused with code `cancelled`. False if nothing ran."""
        return await self._client.ask_control(requests.cancel(self._seat))

    async def rewind(self, turn: int) -> None:
        """Go back to just after this turn (0: the start); later turns are gone."""
        await self._ask(requests.rewind(self._seat, turn))

    async def branch(self, turn: int, *, seed: int | None = None) -> Game:
        """A second game that shares the first turns up to this one, and may have a seed of its own."""
        return Game(self._client, await self._ask(requests.branch(self._seat, turn, seed)))

    async def log(self) -> list[LoggedTurn]:
        """Every finished turn, the newest last."""
        turns: list[LoggedTurn] = []
        more = True
        while more:
            earlier, more = await self._ask(requests.page(self._seat, turns[0].turn if turns else None))
            turns, more = earlier + turns, more and bool(earlier)
        return turns

    async def export(self, on_progress: Callable[[int, int], None] | None = None) -> Exported:
        """Write the game to a folder on the server's machine; `on_progress` is told turns written, and of how many."""
        return await self._ask(requests.export(self._seat, on_progress))

    async def close(self) -> None:
        """End the game for good; to leave it for later, do nothing."""
        await self._ask(requests.close(self._seat))

    async def _ask(self, call: Call[T]) -> T:
        await self._settle()
        return await self._client.ask(call)

    def _follow(self, call: TurnCall) -> Turn:
        async def send() -> None:
            await self._settle()
            self._client.follow(call)
            self._followed.append(call)

        return Turn(self._client, call, send)

    async def _settle(self) -> None:
        """Wait for the end of a turn that was left; it was cancelled then."""
        for call in self._followed:
            if call.abandoned:
                await self._client.wait(call)
                await self._client.hear_out()
        self._followed = [call for call in self._followed if not call.ended]


class Turn(AsyncIterator[Event]):
    """One turn's events, as they come. Raises ServerRefused if the server ends the turn, TimedOut if it is silent.

    The turn is sent when its first event is asked for. Leaving it cancels it: `break`, the end of an `async with`, or
    the cancellation of the task that waits.
    """

    def __init__(self, client: Client, call: TurnCall, send: Callable[[], Awaitable[None]]) -> None:
        self._client, self._call, self._send = client, call, send
        self._sent = False

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> Event:
        if not self._call.abandoned:
            try:
                if not self._sent:
                    await self._send()
                    self._sent = True
                await self._client.wait(self._call)
            except asyncio.CancelledError:
                self._leave()
                raise
            event = self._call.next()
            if event is not None:
                return event
        raise StopAsyncIteration

    async def __aenter__(self) -> Turn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        self._leave()

    @property
    def number(self) -> int | None:
        """The turn's number, once it was accepted."""
        return self._call.turn

    async def close(self) -> None:
        """Cancel the turn, unless it has ended, and wait for its end."""
        self._leave()
        if self._sent and not self._client.closed:
            await self._client.wait(self._call)

    def _leave(self) -> None:
        if self._sent and not (self._call.ended or self._call.abandoned or self._client.closed):
            self._client.leave(self._call)


class Lane:
    """A connection in the event loop; whoever holds the lock waits for all who have calls on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.lock = connection, asyncio.Lock()

    def start(self, call: Call[Any]) -> None:
        """Send a call. Only the holder of the lock may change sockets, or anyone while nobody holds it."""
        self.connection.link.start(call)
        if self.lock.locked():
            self.connection.send()
        else:
            self.connection.advance()

    async def wait(self) -> None:
        """Take in a message; wait for it, but no longer than a moment."""
        if self.connection.advance():
            return
        poller, wait_s = zmq.asyncio.Poller(), self.connection.link.wait_s
        # A descriptor tells of changes only. That is enough, as `advance` has just found nothing to read.
        for socket in self.connection.sockets:
            poller.register(socket.FD, zmq.POLLIN)
        if self.connection.sockets:
            await poller.poll(round(1000 * wait_s))
        else:
            await asyncio.sleep(wait_s)
        self.connection.advance()
