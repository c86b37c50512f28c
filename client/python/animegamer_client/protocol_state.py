"""The client's side of the protocol on one address, without I/O: greeting, pings, time-outs, retries.

It outlives connections. A `Connection` opens a socket when `wants_socket` is true, sends what `outgoing` returns,
passes incoming messages to `received`, and calls `tick` in between.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from .calls import Call, TurnCall
from .codec import Buffer, Message, decode, encode
from .errors import ClientError, ProtocolError, ServerRefused, TimedOut
from .fields import read, text, words
from .requests import resume
from .responses import Welcome

RETRY_S = 0.5
"""Wait before repeating a request that the server could not accept yet, in seconds."""
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.1, 2.0
"""Wait between two attempts to connect: it doubles from the first value to the second, in seconds."""
MAX_TICK_S = 1.0
"""Only this much of a longer time between two ticks counts: the program was busy, the server was not silent."""

TEMPORARY = frozenset({"starting"})
TEMPORARY_AFTER_RECONNECT = frozenset({"starting", "draining", "busy", "rate_limited", "too_many_sessions"})
TEMPORARY_IN_A_TURN = TEMPORARY_AFTER_RECONNECT | {"degraded", "turn_running"}
"""Error codes after which a request is repeated: always; if it was sent on an earlier connection; or for the rest of a
turn that has begun.

After a reconnect the server may still be the one that is stopping, or still count the lost connection. A turn that has
begun may count already: the refusal concerns its replay, and a caller who took it for the turn's would play it twice.
"""
MAX_HEADER_BYTES = 64 * 1024
"""The longest header that a server of version 1 accepts, unless its `welcome` says otherwise."""
REQUEST_ID_BYTES = 32
"""Bytes that a request's id may add to its header."""


class Phase(Enum):
    """What the connection can be used for."""

    DOWN = auto()
    GREETING = auto()
    READY = auto()


class ProtocolState:
    """The calls in progress on one address, and what to send for them.

    hello: the first message on each connection; None if none is needed (the control address).
    clock: returns seconds, as `time.monotonic`. Raises ValueError for a `timeout_s` that is not positive.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float,
        hello: Message | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s!r:.60}; expected seconds, more than 0")
        self.address, self.timeout_s = address, timeout_s
        self.welcome: Welcome | None = None
        self.phase = Phase.DOWN
        self.answered = False
        """Whether a message of this protocol has ever arrived."""
        self.offers: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Session -> the turn of the newest `offer`, and its instructions."""
        self._hello, self._clock = hello, clock
        self._clock_at = clock()
        self._now = 0.0
        self._calls: dict[Call[Any], _CallTiming] = {}
        self._call_of_request: dict[str, Call[Any]] = {}
        self._session_of_resume: dict[str, str] = {}
        self._call_of_check: dict[str, TurnCall] = {}
        self._attached: set[str] = set()
        """Ids of the sessions that belong to this connection."""
        self._outgoing: deque[Message] = deque()
        self._request_ids = itertools.count(1)
        self._hello_id = ""
        self._connect_at = 0.0
        self._backoff_s = 0.0
        self._heard_at = self._answer_at = self._pinged_at = 0.0
        self._trouble = "nothing answered"

    # -- calls

    def start(self, call: Call[Any]) -> None:
        """Add a call. It ends with its answer, an error or the time-out.

        Raises ProtocolError, and adds nothing, if its request cannot be encoded or is too long for the server.
        """
        self.check_size(call.request)
        self._update_clock()
        if not self._active():
            self._heard_at = self._now
        self._calls[call] = _CallTiming(self._now)
        if self.phase is Phase.READY:
            self._send_request(call)

    def check_size(self, request: Message) -> None:
        """Raises ProtocolError for a request that is too long for the server.

        It is not sent: the server does not unpack such a header, so it could not tell which request failed.
        """
        limit = MAX_HEADER_BYTES if self.welcome is None else self.welcome.limits.get("header_bytes", MAX_HEADER_BYTES)
        size = len(encode(request)[1]) + REQUEST_ID_BYTES
        if size > limit:
            raise ProtocolError(
                f"`{request.type}` is too long to be sent; found {size} bytes, expected at most {limit}",
                "shorten its text",
                code="too_large",
            )

    def _active(self) -> list[Call[Any]]:
        """The calls that have not ended; the others are removed."""
        for call in [call for call in self._calls if call.ended]:
            del self._calls[call]
            self._call_of_request = {key: other for key, other in self._call_of_request.items() if other is not call}
        return list(self._calls)

    def _send_request(self, call: Call[Any]) -> None:
        """Send a call's request, after `open` for the call's session on this connection."""
        timing = self._calls[call]
        message = call.to_send(again=timing.reconnected)
        timing.sent, timing.sent_at, timing.retry_at = True, self._now, None
        if message is None:
            return
        if call.session is not None and call.session.id not in self._attached:
            self._attached.add(call.session.id)
            self._session_of_resume[self._send(resume(call.session.token).request)] = call.session.id
        check = call.to_check() if isinstance(call, TurnCall) and timing.reconnected else None
        if check is not None and isinstance(call, TurnCall):
            # A `replay` of another client's turn would take that turn's events, or block this game's next turn.
            self._call_of_check[self._send(check)] = call
        else:
            self._call_of_request[self._send(message)] = call

    def _send(self, message: Message) -> str:
        request_id = str(next(self._request_ids))
        self._outgoing.append(replace(message, id=request_id))
        return request_id

    # -- the connection's side

    @property
    def wants_socket(self) -> bool:
        """Whether to open a new socket now."""
        return self.phase is Phase.DOWN and self._now >= self._connect_at and bool(self._active())

    def opened(self) -> None:
        """A new socket was opened; it may not be connected yet."""
        self._call_of_request, self._session_of_resume, self._attached = {}, {}, set()
        self._call_of_check, self.offers = {}, {}
        self._outgoing.clear()
        self._backoff_s = min(max(MIN_BACKOFF_S, 2 * self._backoff_s), MAX_BACKOFF_S)
        self._connect_at = self._now + self._backoff_s
        self._heard_at = self._now
        for timing in self._calls.values():
            timing.reconnected = timing.sent
        if self._hello is None:
            self._ready()
        else:
            self.phase = Phase.GREETING
            self._hello_id = self._send(self._hello)

    def _ready(self) -> None:
        self.phase = Phase.READY
        for call in self._active():
            self._send_request(call)

    def outgoing(self) -> list[Message]:
        """The messages to send now; each is returned once."""
        messages = list(self._outgoing)
        self._outgoing.clear()
        return messages

    def lost(self, trouble: str | None = None) -> None:
        """The connection is lost; `wants_socket` asks for another if a call needs it. trouble: as for `note`."""
        self._trouble = trouble or self._trouble
        self.phase = Phase.DOWN

    def note(self, trouble: str) -> None:
        """Remember the problem, for the text of a time-out."""
        self._trouble = trouble

    def fail(self, error: ClientError) -> None:
        """End all calls with this error, and the connection."""
        for call in self._active():
            call.fail(error)
        self.phase = Phase.DOWN

    def received(self, frames: Sequence[Buffer]) -> None:
        """Process the frames of one message."""
        self._update_clock()
        self._heard_at = self._now
        try:
            self._process(decode(frames))
        except ProtocolError as error:
            self.fail(error)

    def tick(self) -> None:
        """Check the clock: ping, send late requests again, reconnect, or end calls whose time is up."""
        self._update_clock()
        calls = self._active()
        for call in calls:
            timing = self._calls[call]
            heard_at = max(timing.heard_at, self._answer_at) if call.may_be_slow else timing.heard_at
            if self._now - heard_at >= self.timeout_s:
                kept = isinstance(call, TurnCall) and call.begun
                call.fail(self._timed_out() if kept or timing.refused is None else timing.refused)
        silent_s = self._now - self._heard_at
        if self.phase is Phase.DOWN or not calls:
            return
        if silent_s >= self.timeout_s / 2:
            self.lost(f"no message for {silent_s:.0f} s" if self.answered else None)
        elif self.phase is Phase.READY:
            self._ping_and_retry(silent_s)

    def _ping_and_retry(self, silent_s: float) -> None:
        if min(silent_s, self._now - self._pinged_at) >= self.timeout_s / 4:
            self._pinged_at = self._now
            self._send(Message("ping"))
        for call in self._active():
            timing = self._calls[call]
            overdue = isinstance(call, TurnCall) and self._now - timing.active_at >= self.timeout_s
            if overdue or (timing.retry_at is not None and self._now >= timing.retry_at):
                self._send_request(call)

    @property
    def poll_s(self) -> float:
        """The longest wait for a message before the next `tick`, in seconds."""
        return min(0.25, self.timeout_s / 16)

    def _update_clock(self) -> None:
        clock = self._clock()
        self._now += min(clock - self._clock_at, MAX_TICK_S)
        self._clock_at = clock

    # -- incoming messages

    def _process(self, message: Message) -> None:
        self.answered = True
        if message.type == "welcome":
            if message.parent == self._hello_id and self.phase is Phase.GREETING:
                self.welcome = read(Welcome, message.fields)
                self._trouble = "it stopped responding"
                self._ready()
            return
        if message.type == "offer" and message.session is not None:
            self.offers[message.session] = message.turn or 0, words(message.fields, "instructions")
            return
        checked = self._call_of_check.pop(message.parent or "", None)
        if checked is not None:
            if message.type == "listed":  # a refusal means nothing: the turn itself will show
                checked.on_check(message)
            if not checked.ended:
                self._calls[checked].heard_at = self._now
                self._send_follow_up(checked, checked.to_send(again=True))
            return
        call = self._call_for(message)
        if message.type == "error":
            self._process_error(call, message)
            return
        self._answer_at = self._now
        self._backoff_s = 0.0
        if message.type == "opened" and message.session is not None:
            self._attached.add(message.session)
            for other in self._active():
                if isinstance(other, TurnCall) and other.session.id == message.session:
                    other.on_check(message)
        if call is not None:
            timing = self._calls[call]
            timing.heard_at, timing.refused = self._now, None
            self._send_follow_up(call, call.on_message(message))

    def _call_for(self, message: Message) -> Call[Any] | None:
        """The call that a message belongs to: by its `parent`, or by session and turn for an event."""
        self._active()
        call = self._call_of_request.get(message.parent or "")
        if call is not None or message.turn is None:
            return call
        for other in self._calls:
            if isinstance(other, TurnCall) and (other.turn, other.session.id) == (message.turn, message.session):
                return other
        return None

    def _process_error(self, call: Call[Any] | None, message: Message) -> None:
        code, do = text(message.fields, "code"), message.fields.get("do")
        error = ServerRefused(
            code, text(message.fields, "text"), do if isinstance(do, str) else None, message.fields.get("answer", ())
        )
        resumed = self._session_of_resume.get(message.parent or "")
        if code == "hello_first":
            self.lost("the server was restarted")
        elif message.parent == self._hello_id:
            if code in TEMPORARY or (self.welcome is not None and code in TEMPORARY_AFTER_RECONNECT):
                self.lost(error.text)
            else:
                self.fail(error)
        elif resumed is not None:
            self._attached.discard(resumed)
            for other in self._active():
                if other.session is not None and other.session.id == resumed:
                    self._refuse(other, error)
        elif call is not None:
            self._refuse(call, error)
        elif message.parent is None and message.turn is None and message.session is None:
            self.fail(error)

    def _refuse(self, call: Call[Any], error: ServerRefused) -> None:
        timing = self._calls[call]
        begun = isinstance(call, TurnCall) and call.begun
        codes = TEMPORARY_IN_A_TURN if begun else TEMPORARY_AFTER_RECONNECT if timing.reconnected else TEMPORARY
        if error.code in codes:
            self._trouble = error.text
            timing.refused, timing.retry_at = error, self._now + RETRY_S
        else:
            self._send_follow_up(call, call.on_error(error))

    def _send_follow_up(self, call: Call[Any], message: Message | None) -> None:
        if message is not None:
            self._call_of_request[self._send(message)] = call

    def _timed_out(self) -> TimedOut:
        control = " (control, the port above the one given)" if self._hello is None else ""
        if self.welcome is None:
            do = "check that animegamer-rt serve runs there, and that this is the address it printed"
        else:
            do = (
                "check the server (python -m animegamer_client status ADDRESS); its games are kept: "
                "continue with open(resume=game.token)"
            )
        return TimedOut(f"{self.address}{control}: no answer within {self.timeout_s:g} s ({self._trouble})", do)


class _CallTiming:
    """When a call's request was sent and when it was answered, in seconds of the state's clock."""

    def __init__(self, now: float) -> None:
        self.heard_at = self.sent_at = now
        self.sent = False
        self.reconnected = False
        """Whether the request was sent on an earlier connection."""
        self.retry_at: float | None = None
        self.refused: ServerRefused | None = None

    @property
    def active_at(self) -> float:
        """When something of the call was last sent or received."""
        return max(self.heard_at, self.sent_at)
