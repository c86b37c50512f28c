"""The client for ordinary code: a server, the games on it, and a turn as an iterator of events. Calls wait.

Knows how to wait. What is said is in `requests` and `link`, what carries it is in `connection`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import zmq

from . import requests
from .answers import Exported, LoggedTurn, Seat, Welcome
from .calls import Call, LeftEarly, TurnCall
from .connection import Connection, shut
from .errors import ClientError
from .events import Event
from .link import Link
from .options import Options, addresses, read_keys
from .standing import Standing

T = TypeVar("T")

LAST_WORDS_S = 2.0
"""The longest that `close` waits for the server to hear of turns that were left."""


class Client:
    """One server. Use it as a context manager, from one thread; `cancel`, `status` and `ping` from any.

    address: as tcp://127.0.0.1:5570; the port above it is the control port. Nothing waits longer than `timeout_s` for
    a server that is silent: then comes TimedOut. A lost connection is made again, and what was under way goes on.
    pixel_format: rgb24, rgba32 or bgra32; flip: rows bottom-up; codec: raw or jpeg frames, or mp4 for a clip only;
    clip: the mp4 after the frames. server_key (Z85 or its file), client_keys (file): for a server on another machine.
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
        self._turns = Connection(context, turn_link, keys)
        self._control = Connection(context, control_link, keys)
        self._control_lock = threading.RLock()
        self._last_words: list[Call[bool]] = []
        self._left_early = LeftEarly()
        self._shut = weakref.finalize(self, shut, context, self._turns, self._control)

    def __enter__(self) -> Client:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._shut.alive

    def connect(self) -> Welcome:
        """Greet the server; every other call does it when needed. Raises ClientError, as every call here does."""
        self.ask(requests.ping())
        assert self._turns.link.welcome is not None
        return self._turns.link.welcome

    def open(self, *, seed: int | None = None, history_turns: int | None = None, resume: str | None = None) -> Game:
        """A new game, or with `resume` (a game's token) one that was played before, on any connection."""
        call = requests.open_new(seed, history_turns) if resume is None else requests.open_again(resume)
        return Game(self, self.ask(call))

    def status(self) -> dict[str, Any]:
        """How the server is: the fields of `status` in PROTOCOL.md."""
        return self.ask_control(requests.status())

    def ping(self) -> float:
        """Seconds to the server and back."""
        start = time.perf_counter()
        self.ask_control(requests.ping())
        return time.perf_counter() - start

    def close(self) -> None:
        """Hang up. The games stay on the server: open(resume=token) goes on with them."""
        if self.closed:
            return
        with self._control_lock:
            until = time.monotonic() + LAST_WORDS_S
            while any(not call.ended for call in self._last_words) and time.monotonic() < until:
                _wait(self._control)
        self._shut()

    # -- what games use

    def ask(self, call: Call[T]) -> T:
        """Wait for a call's answer."""
        self.follow(call)
        self.wait(call)
        return call.result()

    def follow(self, call: Call[Any]) -> None:
        """Send a call without waiting."""
        self._check_open()
        self._turns.link.start(call)
        self._turns.advance()

    def wait(self, call: Call[Any]) -> None:
        """Wait until there is something of a call to take."""
        while not call.ready:
            self._check_open()
            _wait(self._turns)
            for turn in self._left_early.begun():
                self._say_cancel(turn)

    def ask_control(self, call: Call[T]) -> T:
        """Wait for a call's answer on the control connection, which no frames hold up."""
        with self._control_lock:
            self._check_open()
            self._control.link.start(call)
            self._control.advance()
        self._wait_control(call)
        return call.result()

    def _wait_control(self, call: Call[Any]) -> None:
        with self._control_lock:
            while not call.ready:
                self._check_open()
                _wait(self._control)

    def leave(self, call: TurnCall) -> None:
        """Cancel a turn that nobody reads on, without waiting."""
        call.abandon()
        self._left_early.add(call)
        self._say_cancel(call)

    def hear_out(self) -> None:
        """Wait for what the server says to the cancels of turns that were left: one on its way may stop the next."""
        for call in self._last_words:
            self._wait_control(call)

    def _say_cancel(self, turn: TurnCall) -> None:
        with self._control_lock:
            if not self.closed:
                call = requests.cancel(turn.place)
                self._last_words = [other for other in self._last_words if not other.ended] + [call]
                self._control.link.start(call)
                self._control.advance()

    def _check_open(self) -> None:
        if self.closed:
            raise ClientError("the client is closed", "make another one; the game goes on with open(resume=token)")


class Game(Standing):
    """One game, played from one thread; `cancel` may come from any."""

    def __init__(self, client: Client, seat: Seat) -> None:
        super().__init__(seat)
        self._client = client
        self._followed: list[TurnCall] = []

    def turn(self, instruction: str, *, turn_id: str | None = None, deadline_s: float | None = None) -> Turn:
        """Play the next turn: an iterator of its events. Leaving the loop early cancels the turn.

        With a turn_id of its own, sending the same turn twice, even from another process, plays it once.
        """
        return self._follow(requests.new_turn(self._seat, instruction, turn_id, deadline_s))

    def replay(self, turn: int, *, after_seq: int = -1) -> Turn:
        """The events of a finished turn again, the same to the last bit; or what is to come of the running one."""
        return self._follow(requests.replay(self._seat, turn, after_seq))

    def cancel(self) -> bool:
        """Stop the running turn, from any thread: its iterator raises ServerRefused with code `cancelled`.

        False if nothing was running.
        """
        return self._client.ask_control(requests.cancel(self._seat))

    def rewind(self, turn: int) -> None:
        """Go back to just after this turn (0: the start); later turns are gone."""
        self._ask(requests.rewind(self._seat, turn))

    def branch(self, turn: int, *, seed: int | None = None) -> Game:
        """A second game that shares the first turns up to this one, and may have a seed of its own."""
        return Game(self._client, self._ask(requests.branch(self._seat, turn, seed)))

    def log(self) -> list[LoggedTurn]:
        """Every finished turn, the newest last."""
        turns: list[LoggedTurn] = []
        more = True
        while more:
            earlier, more = self._ask(requests.page(self._seat, turns[0].turn if turns else None))
            turns, more = earlier + turns, more and bool(earlier)
        return turns

    def export(self, on_progress: Callable[[int, int], None] | None = None) -> Exported:
        """Write the game to a folder on the server's machine; `on_progress` is told turns written, and of how many."""
        return self._ask(requests.export(self._seat, on_progress))

    def close(self) -> None:
        """End the game for good; to leave it for later, do nothing."""
        self._ask(requests.close(self._seat))

    def _ask(self, call: Call[T]) -> T:
        self._settle()
        return self._client.ask(call)

    def _follow(self, call: TurnCall) -> Turn:
        self._settle()
        self._client.follow(call)
        self._followed.append(call)
        return Turn(self._client, call)

    def _settle(self) -> None:
        """Wait for the end of a turn that was left; it was cancelled then."""
        for call in self._followed:
            if call.abandoned:
                self._client.wait(call)
                self._client.hear_out()
        self._followed = [call for call in self._followed if not call.ended]


class Turn(Iterator[Event]):
    """One turn's events, as they come. Raises ServerRefused if the server ends the turn, TimedOut if it is silent.

    Leaving it cancels the turn: `break`, the end of a `with`, or an interrupt while it waits.
    """

    def __init__(self, client: Client, call: TurnCall) -> None:
        self._client, self._call = client, call

    def __iter__(self) -> Turn:
        return self

    def __next__(self) -> Event:
        if not self._call.abandoned:
            try:
                self._client.wait(self._call)
            except KeyboardInterrupt:
                self._leave()
                raise
            event = self._call.next()
            if event is not None:
                return event
        raise StopIteration

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._leave()

    @property
    def number(self) -> int | None:
        """The turn's number, once it was accepted."""
        return self._call.turn

    def close(self) -> None:
        """Cancel the turn, unless it has ended, and wait for its end."""
        self._leave()
        if not self._client.closed:
            self._client.wait(self._call)

    def _leave(self) -> None:
        if not (self._call.ended or self._call.abandoned or self._client.closed):
            self._client.leave(self._call)


def _wait(connection: Connection) -> None:
    """Wait for a message, or a moment, and take it in."""
    poller = zmq.Poller()
    for socket in connection.sockets:
        poller.register(socket, zmq.POLLIN)
    if connection.sockets:
        poller.poll(round(1000 * connection.link.wait_s))
    else:
        time.sleep(connection.link.wait_s)
    connection.advance()
