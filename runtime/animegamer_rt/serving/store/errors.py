"""Errors of stored sessions, below StoreError, and the user's view of SQLite's errors.

StoreError                      the file cannot be read or written
|-- StoreLockedError            another server uses it
|-- StoreFullError              the disk or the quota is full
`-- SessionRefusedError         no such session or turn, or one that cannot be played here
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from animegamer_rt.errors import TRY_AGAIN, StoreError


class StoreLockedError(StoreError):
    """Another server uses the state folder; it may be free later."""

    exit_code = TRY_AGAIN


class StoreFullError(StoreError):
    """The disk or the quota is full; nothing was changed. There may be room later."""

    exit_code = TRY_AGAIN


class SessionRefusedError(StoreError):
    """A session or turn that does not exist or cannot be played here.

    code: unknown_session, wrong_token, session_closed, no_such_turn, bundle_mismatch or engines_mismatch.
    """

    def __init__(self, what: str, *, code: str, **about: Any) -> None:
        super().__init__(what, **about)
        self.code = code


_SQLITE: tuple[tuple[str, type[StoreError], str, str], ...] = (
    ("is locked", StoreLockedError, "another server uses this state folder", "stop it, or choose another --state-dir"),
    ("is full", StoreFullError, "the disk is full", "free disk space; finished turns are kept"),
    ("readonly", StoreError, "the sessions cannot be written", "make the folder and its files writable"),
    (
        "unable to open",
        StoreError,
        "the sessions cannot be opened",
        "choose a writable folder with a short path",
    ),
    ("not a database", StoreError, "not a file of sessions", "move it away, or choose another folder"),
    ("malformed", StoreError, "the sessions are damaged", "restore a backup, or move the file away to start afresh"),
    ("decode", StoreError, "the sessions are damaged", "restore a backup, or move the file away to start afresh"),
)
"""Part of SQLite's message, and its error here (sqlite3 names result codes only from Python 3.11 on)."""


def storage_error(error: sqlite3.Error, path: Path) -> StoreError:
    """The StoreError for an error of SQLite."""
    for part, kind, what, do in _SQLITE:
        if part in str(error):
            return kind(what, where=path, found=str(error), do=do)
    return StoreError("the sessions cannot be read or written", where=path, found=str(error), do="check the disk")
