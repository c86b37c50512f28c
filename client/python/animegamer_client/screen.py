"""What a game looks like on a terminal: state bars with their change, one line of progress, plain lines elsewhere.

Knows how to show; it decides nothing and asks no server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from .answers import Welcome
from .errors import ClientError
from .events import Accepted, Character, Done, Event, Progress, Restarting, State

BAR_CELLS = 20
VALUES = ("stamina", "social", "entertainment")
COLOURS = {"stamina": 31, "social": 35, "entertainment": 33, "up": 32, "down": 31, "dim": 2, "error": 31, "bold": 1}
HELP = """\
Say in your own words who does what where, for example: Character: Mirel; Motion: gently wave; Background: day city.
Ctrl-C stops a turn; at the prompt it leaves the game, as Ctrl-D does. Commands:
  :rewind N   go back to just after turn N (0: the start)
  :branch N   a second game with the same first N turns; this one stays as it is
  :export     write the whole game to a folder on the server's machine
  :status     how the server is
  :quit       leave; the game stays on the server"""


class Screen:
    """Shows one game on `out`. `values`: what the next turn's change is counted from."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.lively = self._out.isatty()
        self._colours = self.lively and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        if os.name == "nt" and "WT_SESSION" not in os.environ:
            self._colours = False
        self._full, self._empty = ("█", "░") if _can_write("█░", self._out) else ("#", ".")
        self.values = Character(50, 50, 50)
        self._line = False

    def opening(self, welcome: Welcome, address: str, character: Character) -> None:
        """Say what is played and where."""
        bundle = welcome.bundle
        self.values = character
        size = f"{bundle.frames} frames, {bundle.width} x {bundle.height}"
        self.say(f"{bundle.name} on {address}: turns of {size}; plan {bundle.plan} ({welcome.server})", "bold")
        if bundle.random_weights:
            self.say("for timing only: the pictures mean nothing", "error")
        if welcome.state != "ready":
            self.say(f"the server is {welcome.state}", "error")

    def show(self, event: Event) -> None:
        """Show what an event of a running turn says."""
        if isinstance(event, Accepted) and event.place:
            self.progress(f"{event.place} before this one, about {event.estimate_s:.0f} s")
        elif isinstance(event, State):
            self._state(event)
        elif isinstance(event, Progress):
            full = round(event.step / event.steps * BAR_CELLS)
            bar = self._full * full + self._empty * (BAR_CELLS - full)
            self.progress(f"drawing {bar} {event.step}/{event.steps}  {event.seconds_left:.1f} s left")
        elif isinstance(event, Restarting):
            self.say(f"  the engine died and starts again in {event.retry_in_s:.1f} s; the turn goes on", "error")

    def finished(self, done: Done, clip: object) -> None:
        """Say where the clip is and where the time went."""
        spent = done.seconds
        stages = f"predictor {spent.predictor:.2f}, denoiser {spent.denoiser:.2f}, vae {spent.vae:.2f}"
        self.say(f"  {clip}  ({spent.total:.2f} s: {stages})", "dim")

    def status(self, status: Mapping[str, Any]) -> None:
        """How the server is, a line a thing."""
        worker = status.get("worker", {})
        self.say(f"state     {status.get('state')}")
        self.say(f"bundle    {status.get('bundle')}, plan {status.get('plan')}")
        self.say(f"server    {status.get('version')}, up {status.get('uptime_s', 0):.0f} s")
        self.say(
            f"turns     {status.get('turns_done')} done, {status.get('running')} running, {status.get('queue')} waiting"
        )
        self.say(f"players   {status.get('sessions')} sessions, {status.get('connections')} connections")
        self.say(f"worker    {worker.get('state')}, {worker.get('restarts')} restarts")
        if worker.get("last_error"):
            self.say(f"          last error: {worker['last_error']}", "error")
        medians = [f"{stage} {seconds:.2f}" for stage, seconds in status.get("seconds", {}).items()]
        if medians:
            self.say(f"seconds   {', '.join(medians)}  (medians of the last turns)")

    def error(self, error: ClientError) -> None:
        """Say what went wrong."""
        self.say(f"error: {error}", "error")

    def say(self, text: str, style: str = "") -> None:
        """One line."""
        self._clear()
        print(self._painted(text, style), file=self._out, flush=True)

    def progress(self, text: str) -> None:
        """A line that the next one takes the place of; nothing where lines cannot be taken back."""
        if self.lively:
            self._clear()
            print(f"  {text}", end="", file=self._out, flush=True)
            self._line = True

    def ended(self) -> None:
        """The turn is over: its progress goes."""
        self._clear()

    def _state(self, event: State) -> None:
        self.say(f"  {'motion level':<15}{event.motion_level}")
        for name in VALUES:
            value, before = getattr(event.shown, name), getattr(self.values, name)
            full = round(value / 100 * BAR_CELLS)
            bar = self._painted(self._full * full, name) + self._painted(self._empty * (BAR_CELLS - full), "dim")
            change = f"{value - before:+d}" if value != before else " ="
            style = "up" if value > before else "down" if value < before else "dim"
            self.say(f"  {name:<15}{bar} {value:>3}  {self._painted(change, style)}")
        self.values = event.shown

    def _clear(self) -> None:
        if self._line:
            print("\r" + " " * 78 + "\r", end="", file=self._out, flush=True)
            self._line = False

    def _painted(self, text: str, style: str) -> str:
        return f"\x1b[{COLOURS[style]}m{text}\x1b[0m" if self._colours and style and text else text


def _can_write(text: str, out: TextIO) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
