"""What a player keeps of a game: a folder with a clip a turn and the contact sheet.

Knows files; it never asks a server.
"""

from __future__ import annotations

from pathlib import Path

from .events import Clip, Event, Frame, Pixels
from .sheet import sheet_row, write_file, write_sheet

GAMES = Path("games")


class Album:
    """The folder of one game. Every method raises OSError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[int, Pixels] = {}
        self._frames: list[Pixels] = []
        self._clip: list[memoryview] = []

    @property
    def sheet(self) -> Path:
        """The contact sheet's path."""
        return self.folder / "contact-sheet.png"

    def clip(self, turn: int) -> Path:
        """The path of a turn's clip."""
        return self.folder / f"turn-{turn:03d}.mp4"

    def begin(self) -> None:
        """Make the folder, and room for a turn; what was kept of an unfinished one goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._frames, self._clip = [], []

    def keep(self, event: Event) -> None:
        """Hold on to a turn's pictures."""
        if isinstance(event, Frame):
            self._frames.append(event.pixels)
        elif isinstance(event, Clip):
            self._clip.append(event.data)

    def finish(self, turn: int) -> Path:
        """Write a finished turn; returns its clip's path."""
        write_file(self.clip(turn), b"".join(self._clip))
        if self._frames:
            self._rows[turn] = sheet_row(self._frames)
            self._write_sheet()
        self._frames, self._clip = [], []
        return self.clip(turn)

    def rewind(self, turn: int, played: int) -> None:
        """Removes the clips of the turns after `turn`, of which `played` is the last, and takes them off the sheet."""
        self._rows = {number: row for number, row in self._rows.items() if number <= turn}
        for number in range(turn + 1, played + 1):
            self.clip(number).unlink(missing_ok=True)
        if played > turn:
            self._write_sheet()

    def branch(self, turn: int) -> Album:
        """The album of a game that shares the first turns, in the next free folder beside this one."""
        other = Album(next_folder(self.folder.parent))
        other._rows = {number: row for number, row in self._rows.items() if number <= turn}
        return other

    def _write_sheet(self) -> None:
        if self._rows:
            write_sheet(self.sheet, [self._rows[number] for number in sorted(self._rows)])
        else:
            self.sheet.unlink(missing_ok=True)


def next_folder(parent: Path) -> Path:
    """The first of `game-001`, `game-002`, .. under `parent` that does not exist yet."""
    number = 1
    while (parent / f"game-{number:03d}").exists():
        number += 1
    return parent / f"game-{number:03d}"
