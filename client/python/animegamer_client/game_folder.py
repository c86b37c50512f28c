"""The folder in which `play` keeps a game's clips: turn-001.mp4, turn-002.mp4, .., and the record that lists them.

Only files that the record lists are replaced or deleted, and only as long as they are what was written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

from .errors import ClientError

GAMES_FOLDER = Path("games")
RECORD = "animegamer-client.json"
FORMAT = "animegamer-client game"
LOCK = ".lock"
"""The locked file inside a folder, on Windows alone."""
MAX_RECORD_BYTES = 16 * 2**20
ANOTHER = "give another folder with --out"


class FolderRefused(ClientError):
    """A folder that is another game's or program's, or in use, or a file in it that is not the game's to replace."""

    code = "folder"


class GameFolder:
    """The clips of one game, which `token` names; the record holds only the token's hash.

    The folder is new, empty, or holds this game already. It is locked against other processes until `close`. Every
    method raises OSError where the folder cannot be written, and FolderRefused where something is not this game's.
    """

    def __init__(self, path: Path, token: str) -> None:
        self.path, self._session = path, hashlib.sha256(token.encode()).hexdigest()
        path.mkdir(parents=True, exist_ok=True)
        self._lock: int | None = _lock(path)
        try:
            self._hashes = self._read()
            self._write()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes use the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            if sys.platform == "win32":
                (self.path / LOCK).unlink(missing_ok=True)

    def clip(self, turn: int) -> Path:
        """The path of a turn's clip."""
        return self.path / f"turn-{turn:03d}.mp4"

    def check_clip(self, turn: int) -> None:
        """Check that a turn's clip may be written: before the turn is played."""
        path = self.clip(turn)
        if os.path.lexists(path) and not self._ours(path):
            raise FolderRefused(f"{path} is not this game's, and would be replaced", f"move it, or {ANOTHER}")

    def write_clip(self, turn: int, data: bytes) -> Path:
        """Write a turn's mp4 in one step and return its path: other programs see the whole file or none."""
        self.check_clip(turn)
        path = self.clip(turn)
        before = self._hashes.get(path.name, [])
        digest = hashlib.sha256(data).hexdigest()
        # The record comes first: after a power cut it lists a clip too many, never one too few.
        self._hashes[path.name] = [*before, digest]
        self._write()
        _replace(path, data)
        self._hashes[path.name] = [digest]
        self._write()
        return path

    def delete_clips(self, first: int, last: int) -> None:
        """Delete the clips of these turns, as far as they are there and are this game's."""
        for turn in range(first, last + 1):
            path = self.clip(turn)
            if self._ours(path):
                path.unlink(missing_ok=True)
            self._hashes.pop(path.name, None)
        self._write()

    def _ours(self, path: Path) -> bool:
        """Whether a file is one that this game wrote, unchanged."""
        listed = self._hashes.get(path.name, [])
        return bool(listed) and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() in listed

    def _read(self) -> dict[str, list[str]]:
        """Clip -> sha256 of what may be in it; empty for a folder that is empty."""
        if not os.path.lexists(self.path / RECORD):
            others = sorted(set(os.listdir(self.path)) - {LOCK, _part(self.path / RECORD).name})
            if others:
                raise FolderRefused(f"{self.path} holds other files, such as {others[0]}", ANOTHER)
            return {}
        try:
            record = json.loads(_read_bounded(self.path / RECORD))
        except (ValueError, RecursionError):
            record = None
        clips = record.get("clips") if isinstance(record, dict) and record.get("format") == FORMAT else None
        if record is None or not _is_listing(clips):
            raise FolderRefused(f"{self.path / RECORD} is not a record of this program", f"move it, or {ANOTHER}")
        if record.get("session") != self._session:
            raise FolderRefused(f"{self.path} holds another game", f"resume that one, or {ANOTHER}")
        found: dict[str, list[str]] = record["clips"]
        return found

    def _write(self) -> None:
        record = {"format": FORMAT, "session": self._session, "clips": self._hashes}
        _replace(self.path / RECORD, (json.dumps(record, indent=1) + "\n").encode())


def new_folder(parent: Path) -> Path:
    """Make the first of `game-001`, `game-002`, .. under `parent` that does not exist. Raises OSError."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        with contextlib.suppress(FileExistsError):
            (parent / f"game-{number:03d}").mkdir()
            return parent / f"game-{number:03d}"
        number += 1


def _is_listing(clips: Any) -> bool:
    """Whether this is what `clips` of a record looks like: names of clips, each with sha256 sums."""
    return isinstance(clips, dict) and all(
        re.fullmatch(r"turn-[0-9]{3,10}\.mp4", name)
        and isinstance(sums, list)
        and all(isinstance(one, str) and re.fullmatch("[0-9a-f]{64}", one) for one in sums)
        for name, sums in clips.items()
    )


def _replace(path: Path, data: bytes) -> None:
    part = _part(path)
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _read_bounded(path: Path) -> bytes:
    """The content of a regular file of a bounded size; raises ValueError for anything else, without waiting for it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RECORD_BYTES:
            raise ValueError("not a small file")
        return os.read(handle, MAX_RECORD_BYTES + 1)
    finally:
        os.close(handle)


def _lock(folder: Path) -> int:
    """An open handle that holds the folder's lock. Raises FolderRefused if another process has it."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT) if sys.platform == "win32" else os.open(folder, os.O_RDONLY)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if sys.platform == "win32" or isinstance(error, BlockingIOError):
            os.close(handle)
            do = f"wait until it has ended, or {ANOTHER}"
            raise FolderRefused(f"another process is writing to {folder}", do) from error
    return handle
