"""Conversations with a server, a class a kind: what to send on each connection, what to do with each answer.

Knows messages and events; it never sees a socket or a clock. `link` sends what these say and brings them the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from .answers import Exported, Seat
from .codec import Message
from .errors import ClientError, ConnectionLost, ServerRefused
from .events import Character, Done, Event, State, read_event
from .fields import integer, several, text

T = TypeVar("T")


class Call(Generic[T]):
    """One request: ended when its answer or an error is there.

    `seat`: the game it is about, if any. `patient`: the server takes its time with this one, so as long as it
    answers pings it is not too late.
    """

    patient = False

    def __init__(self, request: Message, answer: str, read: Callable[[Message], T], seat: Seat | None = None) -> None:
        self.request, self.seat = request, seat
        self.error: ClientError | None = None
        self._answer, self._read = answer, read
        self._results: list[T] = []

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return bool(self._results) or self.error is not None

    @property
    def ready(self) -> bool:
        """Whether there is something to take."""
        return self.ended

    def result(self) -> T:
        """The answer, once ended. Raises the call's error."""
        if self.error is not None:
            raise self.error
        return self._results[0]

    def ask(self, again: bool) -> Message | None:
        """What to send on a new connection; `again`: it was sent on an earlier one. None if nothing is to be sent."""
        return self.request

    def take(self, message: Message) -> Message | None:
        """A message that belongs to this call; returns what to send because of it. Raises ProtocolError."""
        if message.type == self._answer:
            self._results.append(self._read(message))
        return None

    def refuse(self, error: ServerRefused) -> Message | None:
        """The server's error; returns what to send because of it, else the call has ended."""
        self.error = error
        return None

    def fail(self, error: ClientError) -> None:
        """End the call, unless it has ended."""
        if not self.ended:
            self.error = error


class TurnCall(Call[None]):
    """A turn, new (`instruction`) or played before (`turn`, from after `after_seq`): its events in order, each once.

    However often the connection or the server is lost, what was seen is not asked for again.
    """

    def __init__(self, seat: Seat, request: Message, turn: int | None = None, after_seq: int = -1) -> None:
        super().__init__(request, "", lambda _: None, seat)
        self.place = seat
        self.turn, self.seq = turn, after_seq
        self.events: deque[Event] = deque()
        self.abandoned = False
        self.begun = False
        """Whether anything of it has come."""
        self._done = False
        self._new = turn is None
        self._gap_after: int | None = None
        self._character: Character | None = None

    @property
    def patient(self) -> bool:  # type: ignore[override]
        """Once accepted, a turn may stand in the queue for long."""
        return self.turn is not None

    @property
    def ended(self) -> bool:
        """Whether no event will be added."""
        return self._done or self.error is not None

    @property
    def ready(self) -> bool:
        """Whether there is an event, or the end, to take."""
        return bool(self.events) or self.ended

    def abandon(self) -> None:
        """Nobody will read on."""
        self.abandoned = True
        self.events.clear()

    def next(self) -> Event | None:
        """The next event, once ready; None after the last. Raises the turn's error."""
        if self.events:
            return self.events.popleft()
        if self.error is not None:
            raise self.error
        return None

    def ask(self, again: bool) -> Message | None:
        """The turn itself until it has a number, then what is missing of it."""
        if self.abandoned:
            self._done = True
            return None
        return self.request if self.turn is None else self._replay(self.turn)

    def take(self, message: Message) -> Message | None:
        """An event: kept if it is the next one; a gap is asked for again."""
        if message.turn is None or (message.seq is None and message.type != "restarting"):
            return None
        self.turn, self.begun = message.turn, True
        if message.seq is None:
            self._keep(read_event(message, self.seq))
        elif message.seq == self.seq + 1 or (message.type == "done" and message.seq <= self.seq):
            event = read_event(message, message.seq)
            self.seq = message.seq
            self._keep(event)
        elif message.seq > self.seq + 1 and (self._gap_after != self.seq or message.type == "done"):
            # A server that drops messages of a running turn may leave the same gap twice; its end mends it for good.
            self._gap_after = self.seq
            return self._replay(message.turn)
        return None

    def refuse(self, error: ServerRefused) -> Message | None:
        """A server that lost the turn is given it again, under the same turn_id."""
        if error.code == "no_such_turn" and self._new and self.turn is not None and not self.abandoned:
            self.turn = None
            return self.request
        self.error = error
        return None

    def _replay(self, turn: int) -> Message:
        return seated(self.place, "replay", {"after_seq": self.seq}, turn=turn)

    def _keep(self, event: Event | None) -> None:
        if isinstance(event, State):
            self._character = event.character
        if isinstance(event, Done):
            self._done = True
            self.place.turns = event.turns
            if self._character is not None and event.turn == event.turns:
                self.place.character = self._character
        if event is not None and not self.abandoned:
            self.events.append(event)


class LeftEarly:
    """Turns that were left before anything of them had come.

    A turn and its cancel go on two connections: where the cancel was faster it met no turn, and is to be said again.
    """

    def __init__(self) -> None:
        self._calls: list[TurnCall] = []

    def add(self, call: TurnCall) -> None:
        """A turn that is left now, if nothing of it has come."""
        if not call.begun:
            self._calls.append(call)

    def begun(self) -> list[TurnCall]:
        """Those that have begun since and run on, each told once."""
        moved = [call for call in self._calls if call.begun or call.ended]
        for call in moved:
            self._calls.remove(call)
        return [call for call in moved if not call.ended]


class ExportCall(Call[Exported]):
    """Writing a game out on the server: it takes long, reports as it goes, and is not asked for twice."""

    patient = True

    def __init__(self, seat: Seat, on_progress: Callable[[int, int], None] | None) -> None:
        super().__init__(seated(seat, "export"), "exported", _exported, seat)
        self._on_progress = on_progress

    def ask(self, again: bool) -> Message | None:
        """Once only: a second export would run beside the first."""
        if again:
            self.error = ConnectionLost("the connection was lost while the game was written out", "export it again")
            return None
        return self.request

    def take(self, message: Message) -> Message | None:
        """Progress in turns, then the answer."""
        if message.type == "progress" and self._on_progress is not None:
            self._on_progress(integer(message.fields, "step"), integer(message.fields, "steps"))
        return super().take(message)


class CloseCall(Call[None]):
    """Closing a session; one that is closed already is closed."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seated(seat, "close"), "closed", lambda _: None, seat)

    def refuse(self, error: ServerRefused) -> Message | None:
        """Not an error where the session is gone."""
        if error.code == "session_closed":
            self._results.append(None)
        else:
            self.error = error
        return None


def seated(seat: Seat, kind: str, fields: Mapping[str, Any] | None = None, *, turn: int | None = None) -> Message:
    """A message of this kind about this game."""
    return Message(kind, {"token": seat.token, **(fields or {})}, session=seat.session, turn=turn)


def _exported(message: Message) -> Exported:
    get = message.fields
    files = tuple(str(name) for name in several(get, "files"))
    return Exported(text(get, "folder"), integer(get, "turns"), files)
