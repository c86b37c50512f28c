"""Decides what to restart when the picture on the screen is frozen: the browser, then the gateway, then the server.

Pure: observations and times in, actions out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Picture(Enum):
    """What the browser shows."""

    MOVES = "moves"
    FROZEN = "frozen"
    """The same pixels as last time."""
    BLACK = "black"
    GONE = "gone"
    """The browser shows no page, or does not respond."""


class Action(Enum):
    """What to do now. Restarts are listed in the order of the ladder."""

    NOTHING = "nothing"
    BROWSER = "restart the browser"
    GATEWAY = "restart the gateway"
    SERVER = "restart the server"
    SCREEN_ON = "turn the screen on"
    SCREEN_OFF = "turn the screen off"


LADDER = (Action.BROWSER, Action.GATEWAY, Action.SERVER)
MAX_WAIT_S = 600.0
"""Longest wait between restarts if none has helped."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation. wanted: whether the screen should be on now. monitor: whether one is plugged in."""

    picture: Picture
    wanted: bool = True
    monitor: bool = True


class Ladder:
    """The restarts of one screen.

    frozen_s: time after which an unchanged picture counts as frozen. Each step of the ladder gets twice that time to
    help, as a browser and a server take a while to start. After the last step it starts over and waits twice as long,
    at most MAX_WAIT_S. A picture that moves for frozen_s ends the trouble.
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
        if not seen.wanted or not seen.monitor:  # a dark screen proves nothing, and nobody looks at it
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
