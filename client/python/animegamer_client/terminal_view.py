"""Prints a game to the terminal: a line for each event, and one line of progress that is overwritten."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from .events import VALUES, Accepted, Character, Done, Event, Progress, Restarting, State, Understood
from .responses import Welcome


def plain(text: str) -> str:
    """Text of a server or file, made safe for a terminal: cursor movements and reordering characters are escaped.

    Line breaks are kept.
    """
    return "".join(one if one == "\n" or _shown(one) else one.encode("unicode_escape").decode() for one in text)


def _shown(character: str) -> bool:
    # A joiner between letters is part of words and emoji in many scripts; other format characters are not.
    return character in "\u200c\u200d" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


HELP = """\
Say who does what and where, for example: Character: Mirel; Motion: gently wave; Background: day city.
Ctrl-C stops a turn; at the prompt it leaves the game, as does Ctrl-D. Commands:
  :rewind N   delete the turns after turn N (0: all)
  :branch N   continue in a second game with the same first N turns; this one is kept
  :export     write the whole game to a folder on the server's machine
  :status     show the server's state
  :quit       leave; the game stays on the server"""


class TerminalView:
    """Prints one game to stdout. overwrite: show progress on a line that the next one overwrites.

    values: the ones before the next turn, from which its changes are computed.
    """

    def __init__(self, overwrite: bool = False) -> None:
        self.values = Character(50, 50, 50)
        self._overwrite = overwrite
        self._progress = False

    def start(self, welcome: Welcome, address: str, character: Character) -> None:
        """Print what is played, and where."""
        bundle = welcome.bundle
        self.values = character
        clip = f"{bundle.frames} frames, {bundle.width} x {bundle.height}"
        self.line(f"{bundle.name} on {address}: clips of {clip}; plan {bundle.plan} ({welcome.server})")
        if bundle.random_weights:
            self.line("this server only measures time: its pictures are noise")
        if welcome.state != "ready":
            self.line(f"the server is {welcome.state}")

    def event(self, event: Event) -> None:
        """Print an event of a running turn."""
        if isinstance(event, Accepted) and event.place:
            self.progress(f"position {event.place} in the queue, about {event.estimate_s:.0f} s")
        elif isinstance(event, Understood):
            self.line(f"  understood: {event.text}")
            if event.notice is not None:
                self.line(f"  {event.notice}")
        elif isinstance(event, State):
            self.line(f"  motion level   {event.motion_level}")
            for name in VALUES:
                value = getattr(event.shown, name)
                self.line(f"  {name:<13}{value:>4}{value - getattr(self.values, name):>+5}")
            self.values = event.shown
        elif isinstance(event, Progress):
            self.progress(f"step {event.step} of {event.steps}, {event.seconds_left:.1f} s left")
        elif isinstance(event, Restarting):
            self.line(f"  the worker died and restarts in {event.retry_in_s:.1f} s; the turn then continues")

    def finished(self, done: Done, clip: object) -> None:
        """Print the path of the turn's clip, and how long the turn took."""
        spent = done.seconds
        stages = f"predictor {spent.predictor:.2f}, denoiser {spent.denoiser:.2f}, vae {spent.vae:.2f}"
        self.line(f"  {clip}  ({spent.total:.2f} s: {stages})")

    def status(self, status: Mapping[str, Any]) -> None:
        """Print the fields of `status`."""
        worker = status.get("worker", {})
        turns = f"{status.get('turns_done')} done, {status.get('running')} running, {status.get('queue')} waiting"
        self.line(f"state     {status.get('state')}")
        self.line(f"bundle    {status.get('bundle')}, plan {status.get('plan')}")
        self.line(f"server    {status.get('version')}, up {status.get('uptime_s', 0):.0f} s")
        self.line(f"turns     {turns}")
        self.line(f"sessions  {status.get('sessions')} open, {status.get('connections')} connected")
        self.line(f"worker    {worker.get('state')}, {worker.get('restarts')} restarts")
        if worker.get("last_error"):
            self.line(f"          last error: {worker['last_error']}")
        medians = [f"{stage} {seconds:.2f}" for stage, seconds in status.get("seconds", {}).items()]
        if medians:
            self.line(f"seconds   {', '.join(medians)}  (medians of the last turns)")

    def line(self, text: str) -> None:
        """Print a line."""
        self.clear_progress()
        print(plain(text), flush=True)

    def progress(self, text: str) -> None:
        """Print a line that the next one overwrites; nothing if that is not possible."""
        if self._overwrite:
            self.clear_progress()
            print(f"  {plain(text)[:76]}", end="", flush=True)
            self._progress = True

    def clear_progress(self) -> None:
        """Remove the progress line."""
        if self._progress:
            print("\r" + " " * 78 + "\r", end="", flush=True)
            self._progress = False
