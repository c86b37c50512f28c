"""A live game in the terminal: the picture, what it shows, and a line to type in, which stays while clips change."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Iterator

from rich.console import Group
from rich.live import Live
from rich.text import Text

from animegamer_rt.api import Clip
from animegamer_rt.errors import InstructionError
from animegamer_rt.stages.image import Picture
from animegamer_rt.untrusted import plain

from .block_picture import BlockPicture
from .terminal import COLOURS, HELP, QUIT, Terminal, refuse_command

ROWS_BELOW = 7
KEYS = re.compile(r"\x1b(?:[\[O][0-9;?]*[@-~]?|.)?", re.DOTALL)
"""What arrow and function keys send."""
ERASE, CLEAR, END = "\x7f\b", "\x15", "\x04"


@contextlib.contextmanager
def live_screen(terminal: Terminal) -> Iterator[LiveScreen]:
    """The screen of `play_live`. On return the terminal echoes and waits for whole lines again, whatever happened."""
    if sys.platform == "win32":
        raise AssertionError("a live game is refused there")
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        with Live(console=terminal.console, auto_refresh=False, transient=True) as live:
            yield LiveScreen(terminal, live)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        terminal.console.show_cursor()  # which stays hidden if a second Ctrl-C interrupts Live's end


class LiveScreen:
    """Reads keys as they are typed, and shows the line itself."""

    def __init__(self, terminal: Terminal, live: Live) -> None:
        self._terminal, self._live = terminal, live
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._picture: Picture | None = None
        self._told, self._line, self._waiting = Text(), "", ""
        self._keys: list[str] = []

    def begin(self, clip: Clip, asked: bool) -> None:
        values = [(f"{name} {getattr(clip.shown, name)}  ", colour) for name, colour in COLOURS.items()]
        understood, notice = ("", None) if clip.understood is None else (clip.understood.text, clip.understood.notice)
        self._told = Text.assemble(
            (plain(f"turn {clip.turn}: {clip.instruction}"), "bold" if asked else "dim"),
            ("\nunderstood: ", "cyan"),
            plain(understood),
            (f"\n{plain(notice)}" if asked and notice else "", "yellow"),
            "\n",
            *values,
        )
        if asked:
            self._waiting = ""

    def show(self, picture: Picture) -> None:
        self._picture = picture
        self._draw()

    def coming(self, text: str) -> None:
        self._waiting = text
        self._draw()

    def refused(self, error: InstructionError) -> None:
        self._waiting = ""
        self._terminal.refused(error)

    def typed(self, seconds: float) -> str | None:
        until = time.monotonic() + seconds
        while not self._keys:
            if not select.select([sys.stdin], [], [], max(0.0, until - time.monotonic()))[0]:
                return ""
            read = os.read(sys.stdin.fileno(), 4096)
            if not read:  # the terminal is gone
                return None
            self._keys = list(KEYS.sub("", self._decoder.decode(read)))
        while self._keys:
            key = self._keys.pop(0)
            if key == END and not self._line:
                return None
            if key in "\r\n":
                line, self._line = self._line.strip(), ""
                if line:
                    return self._entered(line)
            elif key in ERASE:
                self._line = self._line[:-1]
            elif key == CLEAR:
                self._line = ""
            elif key.isprintable():
                self._line += key
        self._draw()
        return ""

    def _entered(self, line: str) -> str | None:
        if line.lower() in QUIT:
            return None
        if line.lower() in HELP:
            self._terminal.help()
            return ""
        try:
            refuse_command(line)
        except InstructionError as error:
            self.refused(error)
            return ""
        return line

    def _draw(self) -> None:
        line = Text.assemble(("> ", "bold"), plain(self._line), ("_", "blink"))
        waiting = [Text(plain(f"next: {self._waiting}"), "yellow")] if self._waiting else []
        shown = self._picture if self._terminal.preview else None
        picture = [] if shown is None else [BlockPicture(shown, ROWS_BELOW)]
        self._live.update(Group(*picture, self._told, *waiting, line), refresh=True)
