"""Copies a state folder's sessions while a server writes them, and checks the copy.

The server holds SQLite's lock, so the two files are copied directly. Pages of `sessions.sqlite` change only when the
write-ahead log is copied into it, and the log keeps those pages until it is restarted, which changes its header. So if
the log's header is the same before the file was copied and after the log was, the two copies together hold every
transaction up to the last complete one in the log. Otherwise both are copied again.
Source: https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.errors import ConfigError, OutputError, StoreError
from animegamer_rt.untrusted import path as readable_path

from .errors import storage_error
from .store import FILE

WAL_HEADER_BYTES = 32
"""The header holds a salt that changes each time the log is restarted."""
TRY_S, PAUSE_S = 60.0, 0.05
"""Longest time to keep trying, and pause between tries."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished backup: its file, its number of sessions and finished turns, and its bytes."""

    path: Path
    sessions: int
    turns: int
    bytes: int


def back_up(state: Path, folder: Path) -> Backup:
    """Copy the sessions of the state folder `state` into the new folder `folder`, which becomes a state folder.

    A server may use `state` meanwhile and is not blocked. The copy is complete or absent: it is written next to
    `folder`, checked as a whole, and then renamed. Raises StoreError if there are no sessions, if the copy fails the
    check, or if the server writes too fast to be copied; OutputError if `folder` exists or cannot be written.
    """
    source = state / FILE
    if not source.is_file():
        raise StoreError("no sessions to back up", where=state, expected=FILE, do="give serve's --state-dir")
    if os.path.lexists(folder):
        raise OutputError("the backup folder exists already", where=folder, do="give the name of a new folder")
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(mode=0o700)
        try:
            _copy(source, part / FILE)
            sessions, turns = _check(part / FILE, source)
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise OutputError(
            "the backup cannot be written", where=folder, found=error.strerror or str(error), do="choose another folder"
        ) from error
    return Backup(folder / FILE, sessions, turns, (folder / FILE).stat().st_size)


def backup_command(name: str, state: Path) -> int:
    """`animegamer-rt sessions backup`; returns the exit code. Raises AnimeGamerError."""
    try:
        folder = readable_path(name)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    copy = back_up(state, folder)
    print(f"{copy.path}: {copy.sessions} sessions, {copy.turns} turns, {copy.bytes / 2**20:.1f} MiB, checked")
    print(f"to play them: animegamer-rt serve --state-dir {shlex.quote(str(folder))}")
    return 0


def _copy(source: Path, target: Path) -> None:
    log, until = source.with_name(source.name + "-wal"), time.monotonic() + TRY_S
    while True:
        before = _generation(source, log)
        for path, copy in ((source, target), (log, target.with_name(target.name + "-wal"))):
            copy.unlink(missing_ok=True)
            if path.exists():
                shutil.copyfile(path, copy)
                copy.chmod(0o600)
        if before == _generation(source, log):
            return
        if time.monotonic() > until:
            raise StoreError(
                "the sessions change faster than they can be copied",
                where=source,
                found=f"no quiet moment in {TRY_S:g} s",
                do="try again with fewer players, or stop the server for the copy",
            )
        time.sleep(PAUSE_S)


def _generation(source: Path, log: Path) -> tuple[bytes, int]:
    """The log's header; for an empty log, which has none, the time of the last write instead."""
    try:
        with log.open("rb") as file:
            header = file.read(WAL_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return header, 0 if header else source.stat().st_mtime_ns


def _check(path: Path, source: Path) -> tuple[int, int]:
    """Merge the log's copy into the file's and check it; returns its number of sessions and turns.

    source: what was copied, for errors.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            faults = [row[0] for row in copy.execute("PRAGMA integrity_check") if row[0] != "ok"]
            faults += [f"orphaned row in {row[0]}" for row in copy.execute("PRAGMA foreign_key_check")]
            columns = [name for _, name, *_ in copy.execute("PRAGMA table_info(turns)")]
            ((sessions,),) = copy.execute("SELECT count(*) FROM sessions")
            finished = " WHERE done" if "done" in columns else ""  # excludes the running turn
            ((turns,),) = copy.execute(f"SELECT count(*) FROM turns{finished}")
    except sqlite3.Error as error:
        raise storage_error(error, source) from error
    if faults:
        raise StoreError("the copy is damaged", where=source, found=faults[0], do="try again; check the disk")
    return sessions, turns
