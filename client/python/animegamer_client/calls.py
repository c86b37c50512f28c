"""One request in progress, a class per kind: what to send on each connection, and how to handle each answer.

No sockets and no clock: `protocol_state` sends what a call returns, and passes it its answers.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from .codec import Message
from .errors import ClientError, ConnectionLost, ServerRefused
from .events import Accepted, Character, Done, Event, State, Understood, read_event
from .fields import integer, read
from .responses import Exported, SessionInfo

T = TypeVar("T")

UNNUMBERED = ("understood", "restarting")
"""Messages about a turn that have no `seq`."""


class Call(Generic[T]):
    """One request. It ends with its answer or with an error.

    answer: the type of the message that ends it; read: converts that message to the result.
    session: the game it concerns, or None.
    """

    may_be_slow = False
    """True: as long as the server answers pings, this call does not time out."""

    def __init__(
        self, request: Message, answer: str, read: Callable[[Message], T], session: SessionInfo | None = None
    ) -> None:
        self.request, self.session = request, session
        self.error: ClientError | None = None
        self._answer, self._read = answer, read
        self._results: list[T] = []

    @property
    def ended(self) -> bool:
        """Whether the answer or an error has come."""
        return bool(self._results) or self.error is not None

    @property
    def ready(self) -> bool:
        """Whether there is something to read."""
        return self.ended

    def result(self) -> T:
        """The answer; only once ended. Raises the call's error."""
        if self.error is not None:
            raise self.error
        return self._results[0]

    def to_send(self, again: bool) -> Message | None:
        """What to send on a new connection; None: nothing. again: it was sent on an earlier one."""
        return self.request

    def on_message(self, message: Message) -> Message | None:
        """Process a message that belongs to this call; returns the reply to send. Raises ProtocolError."""
        if message.type == self._answer:
            self._results.append(self._read(message))
        return None

    def on_error(self, error: ServerRefused) -> Message | None:
        """Process the server's error; returns the reply to send. If that is None the call has ended."""
        self.error = error
        return None

    def fail(self, error: ClientError) -> None:
        """End the call, unless it has ended."""
        if not self.ended:
            self.error = error


class TurnCall(Call[None]):
    """The events of one turn, in order, each once, however often the connection or the server is lost.

    request: `turn` for a new turn; `replay` for the turn of number `turn`, from after `after_seq`.
    """

    session: SessionInfo

    def __init__(self, session: SessionInfo, request: Message, turn: int | None = None, after_seq: int = -1) -> None:
        super().__init__(request, "", lambda _: None, session)
        self.turn, self.seq = turn, after_seq
        self.events: deque[Event] = deque()
        self.abandoned = False
        self.left = False
        """Whether a loop over the events was left, and reading has not resumed since."""
        self.begun = False
        """Whether an event has arrived."""
        self._turn_id: str | None = request.fields.get("turn_id")
        self._sent = False
        self._done = False
        self._new = turn is None
        self._gap_after: int | None = None
        self._understood = False
        self._character: Character | None = None

    @property
    def may_be_slow(self) -> bool:  # type: ignore[override]
        """An accepted turn may wait in the server's queue for long."""
        return self.turn is not None

    @property
    def ended(self) -> bool:
        """Whether no event will be added."""
        return self._done or self.error is not None

    @property
    def ready(self) -> bool:
        """Whether there is an event to read, or the turn has ended."""
        return bool(self.events) or self.ended

    def abandon(self) -> None:
        """Drop the present and future events: nobody reads them."""
        self.abandoned = True
        self.events.clear()

    def next(self) -> Event | None:
        """The next event, once ready; None after the last. Raises the turn's error."""
        if self.events:
            return self.events.popleft()
        if self.error is not None:
            raise self.error
        return None

    def to_send(self, again: bool) -> Message | None:
        """The request itself until the turn has a number, then `replay` of what is missing.

        A turn that was abandoned is followed to its end as well, so that the game knows when it may go on.
        """
        if self.abandoned:
            self._done = self._done or not self._sent
            return None if self._done else self._replay(self.turn or self.session.turns + 1)
        self._sent = True
        return self.request if self.turn is None else self._replay(self.turn)

    def on_message(self, message: Message) -> Message | None:
        """Add an event if it is the next one; after a gap return a `replay` for it."""
        if message.turn is None or (message.seq is None and message.type not in UNNUMBERED):
            return None
        self.turn, self.begun = message.turn, True
        if message.seq is None:
            self._add(read_event(message, self.seq))
        elif message.seq == self.seq + 1 or (message.type == "done" and message.seq <= self.seq):
            event = read_event(message, message.seq)
            self.seq = message.seq
            self._add(event)
        elif message.seq > self.seq + 1 and (self._gap_after != self.seq or message.type == "done"):
            if message.type == "done":
                self.session.turns = integer(message.fields, "turns")
            # A gap is requested once, as the server may drop the same messages again, and once more after `done`.
            self._gap_after = self.seq
            return self._replay(message.turn)
        return None

    def on_error(self, error: ServerRefused) -> Message | None:
        """If the server has lost the turn, send it again with the same turn_id."""
        if error.code == "no_such_turn" and self._new and self.turn is not None and not self.abandoned:
            self.turn = None
            return self.request
        self.error = error
        return None

    def to_check(self) -> Message | None:
        """The check before the rest of a turn on a new connection: whose turn has its number now; None: none."""
        if self.turn is None or self._turn_id is None:
            return None
        return session_message(self.session, "list", {"before": self.turn + 1})

    def on_check(self, message: Message) -> None:
        """Process `opened` of its session, or the answer to `to_check`.

        The call ends with an error if the number is another client's turn: a killed server keeps only turns that were
        done, and another holder of the token may have played since.
        """
        turns = message.fields.get("turns")
        listed = [message.fields.get("running")] if message.type == "opened" else turns
        for other in listed if isinstance(listed, list) else []:
            if isinstance(other, dict) and other.get("turn") == self.turn and other.get("turn_id") != self._turn_id:
                self._lost_to_another(message)

    def _lost_to_another(self, message: Message) -> None:
        if message.type == "opened":
            self.session.turns = integer(message.fields, "turns")
        text = f"the server lost turn {self.turn}, and another client has since played a turn with that number"
        self.fail(ServerRefused("no_such_turn", text, "read game.log(), and play the turn again if it still fits"))

    def _replay(self, turn: int) -> Message:
        return session_message(self.session, "replay", {"after_seq": self.seq}, turn=turn)

    def _add(self, event: Event | None) -> None:
        if isinstance(event, Accepted):
            self._turn_id = event.turn_id
        if isinstance(event, Understood):
            if self._understood:  # every replay of the turn sends it again
                return
            self._understood = True
        if isinstance(event, State):
            self._character = event.character
        if isinstance(event, Done):
            self._done = True
            self.session.turns = event.turns
            if self._character is not None and event.turn == event.turns:
                self.session.character = self._character
        if event is not None and not self.abandoned:
            self.events.append(event)


class AbandonedTurns:
    """Turns that were abandoned before any of their events had arrived.

    A turn and its `cancel` use two connections. If `cancel` arrives first it stops nothing, so it is sent again once
    the turn has begun.
    """

    def __init__(self) -> None:
        self._calls: list[TurnCall] = []

    def add(self, call: TurnCall) -> None:
        """Add a turn that is abandoned now, unless one of its events has arrived."""
        if not call.begun:
            self._calls.append(call)

    def begun(self) -> list[TurnCall]:
        """The turns that have since begun and still run; each is returned once."""
        moved = []
        for call in [call for call in self._calls if call.begun or call.ended]:
            with contextlib.suppress(ValueError):  # another thread has taken it
                self._calls.remove(call)
                moved.append(call)
        return [call for call in moved if not call.ended]


def remove_ended(calls: list[Any]) -> None:
    """Remove the calls that have ended from a list that several threads may use."""
    for call in list(calls):
        if call.ended:
            with contextlib.suppress(ValueError):  # another thread has removed it
                calls.remove(call)


class ExportCall(Call[Exported]):
    """Writing a game to a folder on the server."""

    may_be_slow = True

    def __init__(self, session: SessionInfo) -> None:
        request = session_message(session, "export")
        super().__init__(request, "exported", lambda answer: read(Exported, answer.fields), session)

    def to_send(self, again: bool) -> Message | None:
        """Once only: a second export would run concurrently."""
        if again:
            self.error = ConnectionLost("the connection was lost while the game was exported", "export it again")
            return None
        return self.request


class PictureCall(Call[T]):
    """Opening a game that starts from a picture, which waits in the server's queue like a turn."""

    may_be_slow = True


class CloseCall(Call[None]):
    """Closing a session. It succeeds if the session is closed already."""

    def __init__(self, session: SessionInfo) -> None:
        super().__init__(session_message(session, "close"), "closed", lambda _: None, session)

    def on_error(self, error: ServerRefused) -> Message | None:
        """`session_closed` is not an error here."""
        if error.code == "session_closed":
            self._results.append(None)
        else:
            self.error = error
        return None


def session_message(
    session: SessionInfo, kind: str, fields: Mapping[str, Any] | None = None, *, turn: int | None = None
) -> Message:
    """A request about a game: its session id in the header, its token in the fields."""
    return Message(kind, {"token": session.token, **(fields or {})}, session=session.id, turn=turn)
