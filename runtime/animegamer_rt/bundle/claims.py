"""Which folders and files a command may write to: those that are new or empty, or contain its own record.

Every writer checks here first, and replaces or deletes only what its record lists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.errors import OutputError

from .files import LOCK, make_folder

OF_NOBODY = frozenset({".DS_Store", "desktop.ini", "Thumbs.db"})
"""Files that the file managers of macOS and Windows leave in folders they show."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A folder that a writer may use. earlier: it has the writer's own record. listed: the files in that record."""

    folder: Path
    earlier: bool
    listed: frozenset[str]
    do: str

    def check(self, name: str) -> None:
        """Raises OutputError if the folder has this file and the writer's record does not list it."""
        path = self.folder / name
        if os.path.lexists(path) and (name not in self.listed or path.is_dir()):
            raise OutputError("the file belongs to something else", where=path, do=f"move it, or {self.do}")


def claim_folder(
    folder: Path,
    kind: str,
    listed: Callable[[Path], Collection[str] | None],
    *,
    do: str = "choose another folder with --out",
) -> Claim:
    """Creates the folder if needed, and checks that a writer of this kind may use it.

    kind: what the writer creates, in words ("a game"). listed: reads the writer's own record in the folder and returns
    the names of its files; None if there is no such record.
    Raises OutputError if the folder cannot be written, or has other content.
    """
    make_folder(folder)
    found = listed(folder)
    if found is not None:
        return Claim(folder, True, frozenset(found), do)
    others = sorted({entry.name for entry in os.scandir(folder)} - {LOCK, *OF_NOBODY})
    if others:
        raise OutputError(
            f"the folder has other files, and no record of {kind}",
            where=folder,
            found=", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else ""),
            do=do,
        )
    return Claim(folder, False, frozenset(), do)


def claim_file(path: Path, kind: str, is_ours: Callable[[Path], bool], *, do: str = "give another name") -> None:
    """Checks that a file may be written: it is missing, empty, or `is_ours` recognises it. Raises OutputError."""
    if path.name in ("", ".", "..") or path.is_dir():
        raise OutputError(f"not a file for {kind}", where=path, found="a folder", do=do)
    if not os.path.lexists(path) or (path.is_file() and path.stat().st_size == 0):
        return
    if not path.is_file() or not is_ours(path):
        raise OutputError(f"this file is not {kind} and would be overwritten", where=path, do=f"move it, or {do}")
