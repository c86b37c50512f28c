"""The folder of `play` with a game's clips, turn-001.mp4, .., and a file that identifies the game."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from .errors import ClientError

GAMES_FOLDER = Path("games")
OWNER = "animegamer-client.txt"


class FolderRefused(ClientError):
    """A folder of another game or program."""

    code = "folder"


class GameFolder:
    """The clips of one game, which `token` names; the folder holds only the token's hash.

    The folder is new, empty, or holds this game already. Every method raises OSError if it cannot be written.
    Raises FolderRefused for any other folder.
    """

    def __init__(self, path: Path, token: str) -> None:
        self.path, session = path, hashlib.sha256(token.encode()).hexdigest()
        path.mkdir(parents=True, exist_ok=True)
        files = sorted(os.listdir(path))
        if OWNER not in files:
            if files:
                raise FolderRefused(f"{path} holds other files, such as {files[0]}", "choose another folder with --out")
            (path / OWNER).write_text(session, encoding="utf-8")
        elif (path / OWNER).read_text(encoding="utf-8", errors="replace") != session:
            raise FolderRefused(f"{path} holds another game", "resume that game, or choose another folder with --out")

    def write_clip(self, turn: int, data: bytes) -> Path:
        """Write a turn's mp4 atomically and return its path: other programs see the whole file or none."""
        path = self._clip(turn)
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_bytes(data)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def delete_clips(self, first: int, last: int) -> None:
        """Delete these turns' clips, if they exist."""
        for turn in range(first, last + 1):
            self._clip(turn).unlink(missing_ok=True)

    def _clip(self, turn: int) -> Path:
        return self.path / f"turn-{turn:03d}.mp4"


def new_folder(parent: Path) -> Path:
    """Make the first of `game-001`, `game-002`, .. under `parent` that does not exist. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        with contextlib.suppress(FileExistsError):
            (parent / f"game-{number:03d}").mkdir()
            return parent / f"game-{number:03d}"
        number += 1
