"""The folder in which `play` keeps a game's clips: turn-001.mp4, turn-002.mp4, .."""

from __future__ import annotations

import os
from pathlib import Path

GAMES_FOLDER = Path("games")


class GameFolder:
    """The clips of one game. Every method raises OSError where the folder cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def clip(self, turn: int) -> Path:
        """The path of a turn's clip."""
        return self.path / f"turn-{turn:03d}.mp4"

    def write_clip(self, turn: int, data: bytes) -> Path:
        """Write a turn's mp4 in one step and return its path: other programs see the whole file or none."""
        path = self.clip(turn)
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_bytes(data)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def delete_clips(self, first: int, last: int) -> None:
        """Delete the clips of these turns, as far as they are there."""
        for turn in range(first, last + 1):
            self.clip(turn).unlink(missing_ok=True)


def next_folder(parent: Path) -> Path:
    """The first of `game-001`, `game-002`, .. under `parent` that does not exist."""
    number = 1
    while (parent / f"game-{number:03d}").exists():
        number += 1
    return parent / f"game-{number:03d}"
