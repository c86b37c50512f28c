"""The common part of the plain and the asyncio client: everything except waiting.

An operation is a generator (`Steps`): it sends requests, and yields a `Wait` where it must wait for one. `client`
drives it with a blocking poll, `aio` in an event loop.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import zmq

from . import requests
from .calls import AbandonedTurns, Call, TurnCall, remove_ended
from .connection import Connection, close_all
from .errors import ClientClosed, ClientError
from .events import Character, Event
from .options import Options, addresses, read_keys, read_picture
from .protocol_state import ProtocolState
from .responses import LoggedTurn, RunningTurn, Seen, SessionInfo, Welcome

CLOSE_TIMEOUT_S = 2.0
"""Longest time that `close` waits for the server's answers to the last cancel requests."""

NOT_BESIDE_A_TURN = frozenset({"rewind", "export", "close"})
"""Requests that the server refuses while a turn of the game runs."""

T = TypeVar("T")
C = TypeVar("C", bound=Connection)


class Wait(NamedTuple):
    """Wait until `call` has something to read, or until `deadline` (of `time.monotonic`)."""

    call: Call[Any]
    on_control: bool
    deadline: float | None = None

    @property
    def over(self) -> bool:
        """Whether the wait has ended."""
        return self.call.ready or (self.deadline is not None and time.monotonic() >= self.deadline)


Steps = Generator[Wait, None, T]
"""An operation that yields its waits and returns its result."""


class BaseClient(Generic[C]):
    """The two connections to a server, and the operations on them.

    A subclass sets `_connection_type` and drives the operations: between two steps it calls `advance` on the
    connection waited for, then `_cancel_begun_turns`.
    """

    _connection_type: type[C]

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
        turns_state, control_state = ProtocolState(turns, timeout_s, hello), ProtocolState(control, timeout_s, None)
        self.address, self.timeout_s = turns, timeout_s
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._turns = self._connection_type(context, turns_state, keys)
        self._control = self._connection_type(context, control_state, keys)
        self._cancels: list[Call[bool]] = []
        self._abandoned = AbandonedTurns()
        self._process = os.getpid()
        self._close_sockets = weakref.finalize(self, close_all, context, self._turns, self._control)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._close_sockets.alive

    def _connection(self, wait: Wait) -> C:
        return self._control if wait.on_control else self._turns

    @property
    def _forked(self) -> bool:
        """Whether another process created this client: ZeroMQ's threads and locks' owners did not survive the fork."""
        return os.getpid() != self._process

    def _check_open(self) -> None:
        if self.closed:
            raise self._closed_error()
        if self._forked:
            do = "create it in the process that plays (multiprocessing: use spawn, or create it after the fork)"
            raise ClientError("the client was created by another process, before a fork", do)

    @staticmethod
    def _closed_error() -> ClientClosed:
        return ClientClosed("the client is closed", "create another one; continue the game with open(resume=token)")

    # -- operations

    def _connect(self) -> Steps[Welcome]:
        yield from self._ask(requests.ping())
        welcome = self._turns.state.welcome
        assert welcome is not None  # requests are sent only after `welcome`
        return welcome

    def _open(
        self,
        seed: int | None,
        history_turns: int | None,
        token: str | None,
        picture: str | os.PathLike[str] | bytes | None,
        motion: str | None,
    ) -> Steps[SessionInfo]:
        if token is not None:
            return self._ask(requests.resume(token))
        return self._ask(requests.open_new(seed, history_turns, read_picture(picture, motion), motion))

    def _ask(self, call: Call[T]) -> Steps[T]:
        self._send(call)
        yield Wait(call, on_control=False)
        return call.result()

    def _ask_control(self, call: Call[T]) -> Steps[T]:
        self._check_open()
        self._control.start(call)
        yield Wait(call, on_control=True)
        return call.result()

    def _send(self, call: Call[Any]) -> None:
        self._check_open()
        self._turns.start(call)

    def _wait_for_cancels(self, deadline: float | None = None) -> Steps[None]:
        """Wait for the answers to all cancel requests: a late one would stop the next turn."""
        for call in list(self._cancels):
            yield Wait(call, on_control=True, deadline=deadline)

    # -- abandoned turns

    def _abandon(self, turn: TurnCall) -> None:
        """Cancel an abandoned turn without waiting."""
        turn.abandon()
        self._abandoned.add(turn)
        self._send_cancel(turn)

    def _cancel_begun_turns(self, wait: Wait) -> None:
        """Cancel once more the abandoned turns whose first cancel arrived before the turn itself."""
        if not wait.on_control:  # events of turns come on the other connection only
            for turn in self._abandoned.begun():
                self._send_cancel(turn)

    def _send_cancel(self, turn: TurnCall) -> None:
        if not (self.closed or self._forked):
            call = requests.cancel(turn.session)
            self._cancels.append(call)
            remove_ended(self._cancels)
            self._control.start(call)


class BaseGame:
    """One game. Its `token` is all it takes to continue it later or elsewhere: keep it, and keep it secret."""

    def __init__(self, client: BaseClient[Any], session: SessionInfo) -> None:
        self._client, self._session = client, session
        self._turn_calls: list[TurnCall] = []

    def __repr__(self) -> str:
        return f"<Game {self._session.id}: {self.turns} turns>"

    @property
    def token(self) -> str:
        """The secret that resumes this game."""
        return self._session.token

    @property
    def session(self) -> str:
        """The session's id, as in events."""
        return self._session.id

    @property
    def seed(self) -> int:
        """Seed of the game's noise, 0..2^63-1."""
        return self._session.seed

    @property
    def history_turns(self) -> int:
        """Past turns that the model sees, 0..16."""
        return self._session.history_turns

    @property
    def turns(self) -> int:
        """Number of finished turns."""
        return self._session.turns

    @property
    def character(self) -> Character:
        """The character's values after the last finished turn."""
        return self._session.character

    @property
    def running(self) -> RunningTurn | None:
        """The turn that was running when the game was resumed; `replay` follows it."""
        return self._session.running

    @property
    def seen(self) -> Seen | None:
        """What was recognised in the start picture; None without one, or if nobody was recognised."""
        return self._session.seen

    # -- operations

    def _ask(self, call: Call[T]) -> Steps[T]:
        if call.request.type in NOT_BESIDE_A_TURN:
            self._abandon_left()
        yield from self._wait_for_abandoned()
        return (yield from self._client._ask(call))

    def _send_turn(self, call: TurnCall) -> None:
        self._turn_calls.append(call)
        try:
            self._client._send(call)
        except ClientError as error:
            call.fail(error)
            raise

    def _log(self) -> Steps[list[LoggedTurn]]:
        turns: list[LoggedTurn] = []
        more = True
        while more:
            earlier, more = yield from self._ask(requests.page(self._session, turns[0].turn if turns else None))
            turns, more = earlier + turns, more and bool(earlier)
        return turns

    def _offers(self) -> Steps[tuple[str, ...]]:
        yield from self._client._ask(requests.ping())  # the server's earlier messages have then been read
        turn, instructions = self._client._turns.state.offers.get(self._session.id, (0, ()))
        return instructions if turn == self._session.turns + 1 else ()

    def _abandon_left(self) -> None:
        """Cancel turns whose loop was left: a variable that still holds the turn does not keep it running."""
        for call in list(self._turn_calls):
            if call.left and not (call.ended or call.abandoned):
                self._client._abandon(call)

    def _wait_for_abandoned(self) -> Steps[None]:
        """Wait for the end of the abandoned, and so cancelled, turns."""
        for call in list(self._turn_calls):
            if call.abandoned:
                yield Wait(call, on_control=False)
                yield from self._client._wait_for_cancels()
        remove_ended(self._turn_calls)


class BaseTurn:
    """Sending one turn, reading its events, and cancelling it when it is left."""

    def __init__(self, game: BaseGame, call: TurnCall) -> None:
        self._game, self._client, self._call = game, game._client, call
        self._sent = False
        self._reader = threading.Lock()

    def __del__(self) -> None:
        self._leave()

    @property
    def number(self) -> int | None:
        """The turn's number in its game, from 1; None until the server has accepted the turn."""
        return self._call.turn

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Inside, nobody else may read the turn: each would get some of its events. Raises ClientError."""
        if not self._reader.acquire(blocking=False):
            raise ClientError(
                "another thread or task is reading this turn's events", "read them in one place, and pass them on"
            )
        try:
            yield
        finally:
            self._reader.release()

    def _send(self) -> Steps[None]:
        if not self._sent:
            self._game._abandon_left()
            yield from self._game._wait_for_abandoned()
            self._sent = True  # before it is: who interrupts the sending cancels the turn
            self._game._send_turn(self._call)

    def _next(self) -> Steps[Event | None]:
        """The next event; None after the last one, and once the turn was left."""
        if self._call.abandoned:
            return None
        self._call.left = False
        yield from self._send()
        yield Wait(self._call, on_control=False)
        return self._call.next()

    def _close(self) -> Steps[None]:
        self._leave()
        if self._sent and not (self._client.closed or self._client._forked):
            yield Wait(self._call, on_control=False)

    def _leave(self) -> None:
        """Cancel the turn, unless it has ended. Does not wait."""
        if self._sent and not (self._call.ended or self._call.abandoned or self._client.closed or self._client._forked):
            self._client._abandon(self._call)
