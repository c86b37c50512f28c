"""Decides what to restart when the picture on the screen stands still: the browser, then the gateway, then the server.

Knows observations and times; looks at nothing and restarts nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Picture(Enum):
    """What the browser shows."""

    MOVES = "moves"
    FROZEN = "frozen"
    """The same pixels as the last time."""
    BLACK = "black"
    GONE = "gone"
    """The browser shows no page, or does not answer."""


class Action(Enum):
    """What is to be done now. The order of the restarts is that of the ladder."""

    NOTHING = "nothing"
    BROWSER = "restart the browser"
    GATEWAY = "restart the gateway"
    SERVER = "restart the server"
    SCREEN_ON = "turn the screen on"
    SCREEN_OFF = "turn the screen off"


LADDER = (Action.BROWSER, Action.GATEWAY, Action.SERVER)
MAX_WAIT_S = 600.0
"""Longest wait between restarts, when none has helped."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation. wanted: whether the hours have the screen on. monitor: whether one is plugged in."""

    picture: Picture
    wanted: bool = True
    monitor: bool = True


class Ladder:
    """The restarts of one screen.

    frozen_s: a picture that stands still for longer is frozen. Each step of the ladder gets twice that time to help, as
    a browser and a server take a while to start. After the last step it begins again and waits twice as long, at most
    MAX_WAIT_S. A picture that moved for as long as it took to call it frozen ends the trouble.
    """

    def __init__(self, frozen_s: float) -> None:
        self._frozen_s = frozen_s
        self._on: bool | None = None
        self._still_since: float | None = None
        self._moves_since: float | None = None
        self._step, self._wait_s = 0, frozen_s

    def next(self, seen: Seen, now: float) -> Action:
        """What to do after this observation; now: seconds, monotonic."""
        if seen.wanted != self._on:
            self._on = seen.wanted
            self._forget()
            return Action.SCREEN_ON if seen.wanted else Action.SCREEN_OFF
        if not seen.wanted or not seen.monitor:  # a dark screen tells nothing, and nobody looks at it
            self._forget()
            return Action.NOTHING
        if seen.picture is Picture.MOVES:
            self._still_since = None
            self._moves_since = now if self._moves_since is None else self._moves_since
            if now - self._moves_since >= self._frozen_s:
                self._step, self._wait_s = 0, self._frozen_s
            return Action.NOTHING
        self._moves_since = None
        if self._still_since is None:
            self._still_since = now
        if now - self._still_since < self._wait_s:
            return Action.NOTHING
        action = LADDER[self._step % len(LADDER)]
        self._step += 1
        self._still_since = now
        rounds = self._step // len(LADDER)
        self._wait_s = min(MAX_WAIT_S, 2 * self._frozen_s * 2**rounds)
        return action

    def _forget(self) -> None:
        self._still_since = self._moves_since = None
        self._step, self._wait_s = 0, self._frozen_s
