"""The folders of exported games: `exports/SESSION-N` in the state folder, N counted up from 1.

Knows folders; nothing of jobs. A game is written to a hidden folder, which is renamed when it is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from animegamer_rt.errors import StoreError

EXPORTS = "exports"
PARTIAL = ".partial"
EXPORTS_KEPT = 3
"""Exported games of a session that stay. When one more is complete the oldest goes: nobody can fill the disk."""


class ExportFolders:
    """The exported games of all sessions."""

    def __init__(self, state_dir: Path) -> None:
        self._parent = state_dir.resolve() / EXPORTS
        for folder in self._parent.glob(f".*{PARTIAL}"):  # of a server that was killed
            delete_export(folder)

    def next(self, session: str) -> Path:
        """A hidden folder for the session's next export; it is not created. Raises StoreError."""
        earlier = self._of_session(session)
        try:
            self._parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _not_written(self._parent, error) from error
        return self._parent / f".{session}-{_number(earlier[-1]) + 1 if earlier else 1}{PARTIAL}"

    def complete(self, folder: Path) -> Path:
        """Give a hidden folder that is complete its name, which is returned. Raises StoreError."""
        named = folder.with_name(folder.name.removeprefix(".").removesuffix(PARTIAL))
        try:
            return folder.rename(named)
        except OSError as error:
            raise _not_written(named, error) from error

    def delete_oldest(self, session: str) -> None:
        """Delete all but the session's newest exports."""
        for folder in self._of_session(session)[:-EXPORTS_KEPT]:
            delete_export(folder)

    def delete_sessions(self, sessions: Sequence[str]) -> None:
        """Delete the exports of sessions that are gone."""
        for session in sessions:
            for folder in self._parent.glob(f"{session}-*"):
                delete_export(folder)

    def _of_session(self, session: str) -> list[Path]:
        """The oldest first."""
        return sorted((folder for folder in self._parent.glob(f"{session}-*") if _number(folder)), key=_number)


def delete_export(folder: Path) -> None:
    """Delete one exported game; what cannot be deleted stays."""
    shutil.rmtree(folder, ignore_errors=True)


def _not_written(path: Path, error: OSError) -> StoreError:
    found, do = error.strerror or str(error), "make room there, or make it writable"
    return StoreError("the export cannot be written", where=path, found=found, do=do)


def _number(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
