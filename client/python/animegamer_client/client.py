"""The plain client: a server, its games, and a turn as an iterator of events. Calls block.

The operations are in `base_client`, waiting is in `blocking_connection`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from . import requests
from .base_client import CLOSE_TIMEOUT_S, BaseClient, BaseGame, BaseTurn, Steps
from .blocking_connection import BlockingConnection
from .calls import TurnCall
from .errors import ClientError
from .events import Event
from .responses import Exported, LoggedTurn, Welcome

T = TypeVar("T")


class Client(BaseClient[BlockingConnection]):
    """One server. Use it as a context manager. Threads may share it; each game is played in one of them.

    A forked process must create its own client: calls on this one raise ClientError there.

    address: such as tcp://127.0.0.1:5570; the next port is the control port.
    timeout_s: seconds without an answer after which a call raises TimedOut. Before that, a lost connection is reopened
    and what was in progress continues.
    pixel_format: rgb24, rgba32 or bgra32. flip: rows run bottom-up. codec: raw or jpeg frames, or mp4 for a clip only.
    jpeg_quality: 1..100. clip: send the mp4 too, after the frames.
    server_key (40 characters of Z85, or a file) and client_keys (a file): for a server on another machine.
    Raises ValueError for an unknown option or a value out of range.
    """

    _connection_type = BlockingConnection

    def __enter__(self) -> Client:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def connect(self) -> Welcome:
        """Connect and return the server's `welcome`. Every other call connects when needed.

        Raises ClientError, as every method here does.
        """
        return self._run(self._connect())

    def open(
        self,
        *,
        seed: int | None = None,
        history_turns: int | None = None,
        resume: str | None = None,
        picture: str | os.PathLike[str] | bytes | None = None,
        motion: str | None = None,
    ) -> Game:
        """Start a new game, or continue the one whose token is `resume`.

        seed: 0..2^63-1, of the game's noise. history_turns: 0..16, past turns that the model sees. None: the server
        chooses; ignored when resuming.
        picture: a PNG, JPEG or WebP file, or its bytes (at most 8 MiB and 16 megapixels), to start from; motion: what
        happens in it ("gently wave"). Only if `connect().capabilities` has `picture`; `Game.seen` is what the server
        recognised. Raises ValueError for a picture without motion or one that is too large, OSError for an unreadable
        file.
        """
        return Game(self, self._run(self._open(seed, history_turns, resume, picture, motion)))

    def status(self) -> dict[str, Any]:
        """The fields of `status` in PROTOCOL.md."""
        return self._run(self._ask_control(requests.status()))

    def close(self) -> None:
        """Disconnect. The games stay on the server: open(resume=token) continues one."""
        if self.closed or self._forked:
            return
        with contextlib.suppress(ClientError):  # another thread has closed it meanwhile
            self._run(self._wait_for_cancels(time.monotonic() + CLOSE_TIMEOUT_S))
        for connection in (self._turns, self._control):
            connection.end(self._closed_error())
        self._close_sockets()

    def _run(self, steps: Steps[T]) -> T:
        """Run an operation to its end, waiting as it asks."""
        while True:
            try:
                wait = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            connection = self._connection(wait)
            while not wait.over:
                self._check_open()
                connection.wait(wait)
                self._cancel_begun_turns(wait)


class Game(BaseGame):
    """One game. Read its turns in one thread; its other methods may be called from any. All raise ClientError."""

    _client: Client

    def turn(self, instruction: str, *, turn_id: str | None = None, deadline_s: float | None = None) -> Turn:
        """Play the next turn: an iterator over its events. Leaving the loop early cancels the turn.

        turn_id: sending the same id twice, even from another process, plays one turn. None: a new id.
        deadline_s: seconds after which the server ends the turn, time in its queue included.
        """
        return self._send_turn_now(requests.new_turn(self._session, instruction, turn_id, deadline_s))

    def replay(self, turn: int, *, after_seq: int = -1) -> Turn:
        """The events of a finished turn again, with the same bytes; or the rest of the running turn's events.

        after_seq: only events with a larger `seq`. `done` always comes.
        """
        return self._send_turn_now(requests.replay(self._session, turn, after_seq))

    def cancel(self) -> bool:
        """Stop the running turn: its iterator raises ServerRefused with code `cancelled`. False if none was running."""
        return self._client._run(self._client._ask_control(requests.cancel(self._session)))

    def rewind(self, turn: int) -> None:
        """Delete the turns after this one; 0 deletes all."""
        self._client._run(self._ask(requests.rewind(self._session, turn)))

    def branch(self, turn: int, *, seed: int | None = None) -> Game:
        """A second game that shares the turns up to this one. seed: its own; None: this game's."""
        return Game(self._client, self._client._run(self._ask(requests.branch(self._session, turn, seed))))

    def log(self) -> list[LoggedTurn]:
        """All finished turns, the newest last."""
        return self._client._run(self._log())

    def offers(self) -> tuple[str, ...]:
        """Instructions whose next turn is ready and would start at once. Only from a server with `--ahead`."""
        return self._client._run(self._offers())

    def wish(self, instructions: Iterable[str]) -> tuple[str, ...]:
        """Say what the next turn (while one runs, the turn after it) may be: at most 16, the likeliest first.

        A server with `--ahead` makes these ready, so that they start at once: those returned, as it would play them.
        Replaces the earlier wish. It may be called in the middle of a turn's loop.
        """
        return self._client._run(self._ask(requests.wish(self._session, instructions)))

    def export(self) -> Exported:
        """Write the game to a folder on the server's machine.

        Raises ConnectionLost if the connection is lost meanwhile: an export is not started twice.
        """
        return self._client._run(self._ask(requests.export(self._session)))

    def close(self) -> None:
        """End the game for good. To continue it later, do not close it: keep its token."""
        self._client._run(self._ask(requests.close(self._session)))

    def _send_turn_now(self, call: TurnCall) -> Turn:
        turn = Turn(self, call)
        try:
            self._client._run(turn._send())
        except KeyboardInterrupt:
            turn._leave()
            raise
        return turn


class Turn(BaseTurn, Iterator[Event]):
    """An iterator over one turn's events. Raises ServerRefused if the server ends the turn, TimedOut if it is silent.

    Leaving it early cancels the turn: `break`, the end of a `with`, or KeyboardInterrupt while it waits. After a
    `break`, a turn still held by a variable may be resumed; it is cancelled when the game's next turn is requested.
    """

    _client: Client

    def __iter__(self) -> Iterator[Event]:
        return _Loop(self)

    def __next__(self) -> Event:
        try:
            with self._alone():
                event = self._client._run(self._next())
        except KeyboardInterrupt:
            self._leave()
            raise
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the turn, unless it has ended, and wait for its end."""
        self._client._run(self._close())


class _Loop(Iterator[Event]):
    """One loop over a turn's events. Python deletes it when the loop is left, even by `break`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __next__(self) -> Event:
        return next(self._turn)

    def __del__(self) -> None:
        self._turn._call.left = True
