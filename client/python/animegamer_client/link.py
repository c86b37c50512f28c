"""One conversation with a server over connections that come and go: greeting, pings, time-outs, asking again.

Knows calls, messages and the clock; it does no input or output. A driver opens sockets when `wants_socket` says so,
sends what `outgoing` holds, hands in what came, and calls `tick` in between.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from .answers import Welcome
from .calls import Call, TurnCall
from .codec import Buffer, Message, decode, encode
from .errors import ClientError, ProtocolError, ServerRefused, TimedOut
from .fields import text
from .requests import open_again

LATER_S = 0.5
"""Wait before a request is made again that the server could not take just now."""
FIRST_BACK_OFF_S, LAST_BACK_OFF_S = 0.1, 2.0
"""Wait before the second of two connections in a row, and the longest one."""
MOST_PAUSE_S = 1.0
"""Most of the time between two ticks that counts: beyond it the program did something else, which is no silence."""

ALWAYS_LATER = frozenset({"starting"})
LATER_AFTER_A_LOSS = frozenset({"starting", "draining", "busy", "rate_limited", "too_many_sessions"})
"""Refusals that pass: while a server comes up, while one that died is being replaced, and while one that has not
noticed the loss still counts the connection that was lost."""


class Phase(Enum):
    """Where a connection is."""

    DOWN = auto()
    GREETING = auto()
    READY = auto()


class Link:
    """The calls under way on one address and what they need; `hello` None greets nobody (the control address)."""

    def __init__(
        self,
        address: str,
        timeout_s: float,
        hello: Message | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}; expected seconds, more than 0")
        self.address, self.timeout_s = address, timeout_s
        self.welcome: Welcome | None = None
        self.phase = Phase.DOWN
        self.answered = False
        self._hello, self._clock = hello, clock
        self._real = clock()
        self._now = 0.0
        self._calls: dict[Call[Any], _Timing] = {}
        self._asked: dict[str, Call[Any]] = {}
        self._sittings: dict[str, str] = {}
        self._seated: set[str] = set()
        self._outgoing: deque[Message] = deque()
        self._numbers = itertools.count(1)
        self._hello_id = ""
        self._socket_at = 0.0
        self._back_off_s = 0.0
        self._heard_at = self._alive_at = self._pinged_at = 0.0
        self._trouble = "nothing answered"

    # -- calls

    def start(self, call: Call[Any]) -> None:
        """Take on a call; it is ended when its answer, an error or the time-out comes.

        Raises ProtocolError, and takes on nothing, if what it asks cannot be sent.
        """
        encode(call.request)
        self._pass_time()
        if not self._active():
            self._heard_at = self._now
        self._calls[call] = _Timing(self._now)
        if self.phase is Phase.READY:
            self._ask(call)

    def _active(self) -> list[Call[Any]]:
        for call in [call for call in self._calls if call.ended]:
            del self._calls[call]
            self._asked = {number: asked for number, asked in self._asked.items() if asked is not call}
        return list(self._calls)

    def _ask(self, call: Call[Any]) -> None:
        """Send what a call has to say on this connection, taking its game's seat here first."""
        timing = self._calls[call]
        message = call.ask(timing.lost)
        timing.asked, timing.asked_at, timing.later_at = True, self._now, None
        if message is None:
            return
        if call.seat is not None and call.seat.session not in self._seated:
            self._seated.add(call.seat.session)
            self._sittings[self._send(open_again(call.seat.token).request)] = call.seat.session
        self._asked[self._send(message)] = call

    def _send(self, message: Message) -> str:
        number = str(next(self._numbers))
        self._outgoing.append(replace(message, id=number))
        return number

    # -- the driver's side

    @property
    def wants_socket(self) -> bool:
        """Whether the driver should open a (new) socket now."""
        return self.phase is Phase.DOWN and self._now >= self._socket_at and bool(self._active())

    def opened(self) -> None:
        """The driver has a fresh socket; it may not be connected yet."""
        self._asked, self._sittings, self._seated = {}, {}, set()
        self._outgoing.clear()
        self._back_off_s = min(max(FIRST_BACK_OFF_S, 2 * self._back_off_s), LAST_BACK_OFF_S)
        self._socket_at = self._now + self._back_off_s
        self._heard_at = self._now
        for timing in self._calls.values():
            timing.lost = timing.asked
        if self._hello is None:
            self._ready()
        else:
            self.phase = Phase.GREETING
            self._hello_id = self._send(self._hello)

    def _ready(self) -> None:
        self.phase = Phase.READY
        for call in self._active():
            self._ask(call)

    def outgoing(self) -> list[Message]:
        """What is to be sent, once."""
        messages = list(self._outgoing)
        self._outgoing.clear()
        return messages

    def lost(self, trouble: str | None = None) -> None:
        """The connection is gone; another is opened if a call needs it. `trouble`: as for `noticed`."""
        self._trouble = trouble or self._trouble
        self.phase = Phase.DOWN

    def noticed(self, trouble: str) -> None:
        """What to say should the time run out."""
        self._trouble = trouble

    def fail(self, error: ClientError) -> None:
        """End every call, and this connection with them."""
        for call in self._active():
            call.fail(error)
        self.phase = Phase.DOWN

    def received(self, frames: Sequence[Buffer]) -> None:
        """One message that came on the socket."""
        self._pass_time()
        self._heard_at = self._now
        try:
            self._take(decode(frames))
        except ProtocolError as error:
            self.fail(error)

    def tick(self) -> None:
        """Look at the clock: what is late is asked for again, pinged for, or given up."""
        self._pass_time()
        calls = self._active()
        for call in calls:
            timing = self._calls[call]
            sign_of_life = max(timing.heard_at, self._alive_at) if call.patient else timing.heard_at
            if self._now - sign_of_life >= self.timeout_s:
                call.fail(timing.refused or self._timed_out())
        silent_s = self._now - self._heard_at
        if self.phase is Phase.DOWN or not calls:
            return
        if silent_s >= self.timeout_s / 2:
            self.lost(f"nothing came for {silent_s:.0f} s")
        elif self.phase is Phase.READY:
            self._nudge(silent_s)

    def _nudge(self, silent_s: float) -> None:
        """Ask for a sign of life in silence, and once more for what is overdue."""
        if min(silent_s, self._now - self._pinged_at) >= self.timeout_s / 4:
            self._pinged_at = self._now
            self._send(Message("ping"))
        for call in self._active():
            timing = self._calls[call]
            overdue = isinstance(call, TurnCall) and self._now - timing.last_at >= self.timeout_s
            if overdue or (timing.later_at is not None and self._now >= timing.later_at):
                self._ask(call)

    @property
    def wait_s(self) -> float:
        """The longest that a driver may wait for a message before the next tick."""
        return min(0.25, self.timeout_s / 16)

    def _pass_time(self) -> None:
        real = self._clock()
        self._now += min(real - self._real, MOST_PAUSE_S)
        self._real = real

    # -- what comes

    def _take(self, message: Message) -> None:
        self.answered = True
        if message.type == "welcome":
            if message.parent == self._hello_id and self.phase is Phase.GREETING:
                self.welcome = Welcome.read(message)
                self._trouble = "it stopped answering"
                self._ready()
            return
        call = self._owner(message)
        if message.type == "error":
            self._refused(call, message)
            return
        self._alive_at = self._now
        self._back_off_s = 0.0
        if message.type == "opened" and message.session is not None:
            self._seated.add(message.session)
        if call is not None:
            timing = self._calls[call]
            timing.heard_at, timing.refused = self._now, None
            self._follow_up(call, call.take(message))

    def _owner(self, message: Message) -> Call[Any] | None:
        """The call that a message belongs to: by its parent, or as an event of a turn that is followed."""
        self._active()
        call = self._asked.get(message.parent or "")
        if call is not None or message.turn is None:
            return call
        turns = [other for other in self._calls if isinstance(other, TurnCall) and other.turn == message.turn]
        return next((turn for turn in turns if turn.seat is not None and turn.seat.session == message.session), None)

    def _refused(self, call: Call[Any] | None, message: Message) -> None:
        code, do = text(message.fields, "code"), message.fields.get("do")
        error = ServerRefused(code, text(message.fields, "text"), do if isinstance(do, str) else None)
        sitting = self._sittings.get(message.parent or "")
        if code == "hello_first":
            self.lost("the server is a new one")
        elif message.parent == self._hello_id:
            if code in ALWAYS_LATER or (self.welcome is not None and code in LATER_AFTER_A_LOSS):
                self.lost(error.text)
            else:
                self.fail(error)
        elif sitting is not None:
            self._seated.discard(sitting)
            for other in self._active():
                if other.seat is not None and other.seat.session == sitting:
                    self._refuse(other, error)
        elif call is not None:
            self._refuse(call, error)
        elif message.parent is None and message.turn is None and message.session is None:
            self.fail(error)

    def _refuse(self, call: Call[Any], error: ServerRefused) -> None:
        timing = self._calls[call]
        if error.code in ALWAYS_LATER or (timing.lost and error.code in LATER_AFTER_A_LOSS):
            timing.refused, timing.later_at = error, self._now + LATER_S
        else:
            self._follow_up(call, call.refuse(error))

    def _follow_up(self, call: Call[Any], message: Message | None) -> None:
        if message is not None:
            self._asked[self._send(message)] = call

    def _timed_out(self) -> TimedOut:
        control = " (control, the port above the one given)" if self._hello is None else ""
        if self.welcome is None:
            do = "see that animegamer-rt serve runs there, and that this is the address it printed"
        else:
            do = (
                "see how the server is (python -m animegamer_client status ADDRESS); its games are kept, and "
                "open(resume=game.token) goes on with yours"
            )
        return TimedOut(f"{self.address}{control}: no answer within {self.timeout_s:g} s ({self._trouble})", do)


class _Timing:
    """When a call was asked and heard of, on the link's clock; `lost`: asked on a connection that is gone."""

    def __init__(self, now: float) -> None:
        self.heard_at = self.asked_at = now
        self.asked = self.lost = False
        self.later_at: float | None = None
        self.refused: ServerRefused | None = None

    @property
    def last_at(self) -> float:
        """When it was last asked or heard of."""
        return max(self.heard_at, self.asked_at)
