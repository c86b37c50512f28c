"""Exported games on disk: the limits on their bytes, number and age, and the day's games as one file for staff.

Knows the server's folder `exports/`, where each game is a folder.
"""

from __future__ import annotations

import logging
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

DAY_S = 86_400.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Game:
    """One exported game. changed_s: seconds since 1970."""

    folder: Path
    size_bytes: int
    changed_s: float


def games(folder: Path) -> list[Game]:
    """The finished games, oldest first. What is being written is hidden and left out."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            if path.name.startswith(".") or not path.is_dir() or path.is_symlink():
                continue
            sizes = [one.stat().st_size for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
            found.append(Game(path, sum(sizes), path.stat().st_mtime))
        except OSError:  # the server has just deleted it
            continue
    return sorted(found, key=lambda game: (game.changed_s, game.folder.name))


def delete_oldest(folder: Path, now_s: float, mib: float, count: int, days: float) -> list[Path]:
    """Delete the oldest games above a limit; 0 is no limit. Returns what was deleted."""
    left, deleted = games(folder), []
    while left:
        too_many = (
            (mib and sum(game.size_bytes for game in left) > mib * 2**20)
            or (count and len(left) > count)
            or (days and now_s - left[0].changed_s > days * DAY_S)
        )
        if not too_many:
            break
        game = left.pop(0)
        try:
            shutil.rmtree(game.folder)
        except OSError as error:
            log.warning("the game %s cannot be deleted: %s", game.folder.name, error.strerror)
        else:
            deleted.append(game.folder)
    return deleted


def write_zip(folder: Path, since_s: float, target: IO[bytes]) -> int:
    """Write the games that changed since then into a zip file; returns how many there are."""
    chosen = [game for game in games(folder) if game.changed_s >= since_s]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, strict_timestamps=False) as packed:
        for game in chosen:
            for path in sorted(game.folder.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    packed.write(path, path.relative_to(folder))
    return len(chosen)
