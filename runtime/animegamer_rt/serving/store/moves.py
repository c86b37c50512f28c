"""Moves a session to another state folder, so that at any moment one of the two plays it, whoever is killed when.

Knows files and rows; nothing of sockets. The folder that receives sessions has a folder `arrivals`. A move is:

1. here: the session's rows are written to `arrivals/.NAME.part`, where NAME is SESSION-MOVE
2. here: the session is marked as moving; from now on it is not played here
3. here: the file is renamed to `arrivals/NAME.session`. This decides: the session is there now
4. here: the rows are deleted, the mark and the token's hash stay; `arrivals/NAME.left` says so
5. there: the file's rows are stored, and it becomes `arrivals/NAME.taken`; with NAME.left beside it, both are deleted

After a kill the next start looks for NAME: with a `.session` or `.taken` there, 4 is done, else 2 is undone. If the
folder cannot be read, the session is played nowhere until it can. 5 happens when a store is opened, and when it is
asked for a session that it does not have; it is idempotent: the session keeps the id of the move that brought it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack

from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.errors import StoreError

from .database import Database
from .errors import SessionMovedError
from .schema import SCHEMA_VERSION

log = logging.getLogger("animegamer_rt.serving.server.store")
ARRIVALS, SERVER_FILE = "arrivals", "server.json"
ARRIVING, TAKEN, LEFT = ".session", ".taken", ".left"
TABLES = ("turns", "shots", "starts")
"""What belongs to a session, in an order in which the rows can be inserted."""
_EVERYWHERE = {"0.0.0.0", "[::]", "::"}
_DAMAGED = (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""SQLite's errors for rows that no table takes, whatever the disk is like."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a session went. move: the id of this one move. address: of the server there, as it last listened."""

    move: str
    folder: str
    address: str
    turns: int

    @classmethod
    def from_json(cls, text: object, path: Path) -> Departure:
        """What a session's row says. path: of the database. Raises StoreError."""
        try:
            departure = cls(**json.loads(text))  # type: ignore[arg-type]
            if not isinstance(departure.move, str) or not isinstance(departure.folder, str):
                raise TypeError("no move's name or folder")
        except (ValueError, TypeError) as error:
            do = "put back a copy, or move the file away to start afresh"
            raise StoreError("the sessions are damaged", where=path, found=f"{error}", do=do) from error
        return departure

    @property
    def arrivals(self) -> Path:
        """The folder that the session's file is renamed in."""
        return Path(self.folder) / ARRIVALS

    def error(self, session: str, certain: bool) -> SessionMovedError | StoreError:
        """What whoever asks for the session is told."""
        where = f"session {session}"
        if certain:
            do = f"connect to {self.address} and open it there with the same token; no turn is lost"
            return SessionMovedError("the session has moved to another server", where=where, do=do)
        what = "the session was being moved when the server ended, and the other server's folder cannot be read"
        return StoreError(what, where=where, found=self.folder, do="make that folder readable again; no turn is lost")


def write_server_file(folder: Path, address: str, bundle: str, fingerprint: str) -> None:
    """Note in a state folder where its server listens and what it plays, for sessions that move there."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    known = socket.gethostname() if host in _EVERYWHERE else host
    facts = {"address": f"tcp://{known}:{port}", "bundle": bundle, "fingerprint": fingerprint}
    path = folder / SERVER_FILE
    try:
        (folder / ARRIVALS).mkdir(mode=0o700, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(facts | {"store_version": SCHEMA_VERSION}), encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        log.warning("%s cannot be written (%s); no session can be moved to this server", path, error.strerror)


def read_server_file(folder: Path) -> tuple[int, str, str]:
    """Of a state folder: its store's version, where its server listens, its bundle's fingerprint. Raises StoreError."""
    try:
        server = read_json(folder / SERVER_FILE)
        return int(server["store_version"]), str(server["address"]), str(server["fingerprint"])
    except PermissionError as error:
        do = "run this as the user of both servers"
        what = "the other server's folder cannot be read"
        raise StoreError(what, where=folder, found=error.strerror, do=do) from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        do = "give the state folder of a server that has been started once; of another machine, as it is mounted here"
        found = f"no {SERVER_FILE}" if isinstance(error, OSError) else f"{SERVER_FILE} that no server wrote"
        raise StoreError("not a server's state folder", where=folder, found=found, do=do) from error


def move_out(database: Database, key: int, session: str, turns: int, fingerprint: str, folder: Path) -> Departure:
    """Move a session to the state folder `folder`. Raises StoreError, and then it is still here and played here."""
    departure = _plan(database.path.parent, turns, fingerprint, folder)
    name = f"{session}-{departure.move}"
    part = departure.arrivals / f".{name}.part"
    try:
        with open(part, "xb", opener=_private) as file:
            file.write(_pack(database, key))
            file.flush()
            os.fsync(file.fileno())
        with database.transaction():
            database.rows("UPDATE sessions SET moved = ? WHERE key = ?", json.dumps(asdict(departure)), key)
        with contextlib.suppress(OSError):  # whether it was renamed is seen next
            os.rename(part, departure.arrivals / (name + ARRIVING))
            _sync_folder(departure.arrivals)
    except (OSError, StoreError) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, StoreError):
            raise
        raise _unwritable(departure.arrivals, error) from error
    if not _settle(database, key, session, departure):
        raise _unwritable(departure.arrivals, OSError("the session's file could not be renamed"))
    return departure


def settle(database: Database) -> None:
    """Finish or undo each move that was interrupted; one whose folder cannot be read stays as it is."""
    for key, session, moved in database.rows("SELECT key, id, moved FROM sessions WHERE moved NOTNULL AND NOT closed"):
        try:
            _settle(database, key, session, Departure.from_json(moved, database.path))
        except StoreError as error:
            log.error("session %s: %s", session, error)


def take_arrivals(database: Database, now: float) -> int:
    """Store the sessions that have been moved here; returns how many. Raises StoreError if one cannot be stored."""
    folder = database.path.parent / ARRIVALS
    try:
        names = set(os.listdir(folder))
    except OSError:
        return 0
    taken = 0
    for name in sorted(names):
        path = folder / name
        with contextlib.suppress(OSError):
            if path.suffix == TAKEN and path.stem + LEFT in names:
                path.unlink()
                path.with_suffix(LEFT).unlink()
        if path.suffix == ARRIVING:
            taken += _take(database, path, now)
    return taken


def _plan(here: Path, turns: int, fingerprint: str, folder: Path) -> Departure:
    version, address, other = read_server_file(folder)
    if folder.samefile(here):
        raise StoreError("the session is in this folder already", where=folder, do="give another server's folder")
    if version < SCHEMA_VERSION:
        what, do = "an older version of animegamer-rt serves that folder", "update it there, and start it once"
        raise StoreError(what, where=folder, found=f"store {version}", expected=f"store {SCHEMA_VERSION}", do=do)
    if other != fingerprint:
        what, do = "the other server plays another bundle", "move it to a server that plays the session's bundle"
        raise StoreError(what, where=folder, found=other, expected=fingerprint, do=do)
    return Departure(secrets.token_hex(8), str(folder.resolve()), address, turns)


def _settle(database: Database, key: int, session: str, departure: Departure) -> bool:
    """Finish the move if it was decided, else undo it; returns whether it was. Raises what `Departure.error` says."""
    name = f"{session}-{departure.move}"
    try:
        names = os.listdir(departure.arrivals)
    except OSError as error:
        raise departure.error(session, certain=False) from error
    if name + ARRIVING not in names and name + TAKEN not in names:
        database.rows("UPDATE sessions SET moved = NULL WHERE key = ?", key)
        with contextlib.suppress(OSError):
            (departure.arrivals / f".{name}.part").unlink()
        return False
    with database.transaction():
        for table in reversed(TABLES):
            database.rows(f"DELETE FROM {table} WHERE session = ?", key)
        database.rows("UPDATE sessions SET closed = 1 WHERE key = ?", key)
    with contextlib.suppress(OSError):
        (departure.arrivals / (name + LEFT)).touch()
    return True


def _take(database: Database, path: Path, now: float) -> bool:
    move = path.stem.rpartition("-")[2]
    try:
        _sync_folder(path.parent)  # the rename has to be on the disk before the session is
        rows = msgpack.unpackb(path.read_bytes())
        known = database.rows("SELECT key, arrived, closed AND moved NOTNULL FROM sessions WHERE id = ?", rows["id"])
        new = not known or known[0][1] != move
        if new and known and not known[0][2]:
            raise ValueError("a session of that id is here")
        if new:
            with database.transaction():
                database.rows("DELETE FROM sessions WHERE id = ?", rows["id"])  # it had moved away, and comes back
                _unpack(database, rows, {"used": now, "moved": None, "arrived": move})
        os.rename(path, path.with_suffix(TAKEN))
        os.truncate(path.with_suffix(TAKEN), 0)
        return new
    except (OSError, ValueError, TypeError, KeyError, OverflowError, StoreError) as error:
        if isinstance(error, StoreError) and not isinstance(error.__cause__, _DAMAGED):
            raise
        log.error("a session that moved here cannot be read: %s: %s", path, error)
        return False


def _pack(database: Database, key: int) -> bytes:
    rows: dict[str, Any] = {table: _read(database, table, "session", key) for table in TABLES}
    rows["sessions"] = _read(database, "sessions", "key", key)
    return bytes(msgpack.packb(rows | {"id": rows["sessions"][0]["id"]}))


def _read(database: Database, table: str, column: str, key: int) -> list[dict[str, Any]]:
    names = _columns(database, table)
    found = database.rows(f"SELECT {', '.join(names)} FROM {table} WHERE {column} = ?", key)
    return [dict(zip(names, row, strict=True)) for row in found]


def _unpack(database: Database, rows: Mapping[str, Any], changed: Mapping[str, object]) -> None:
    (session,) = rows["sessions"]
    _insert(database, "sessions", {**session, **changed})
    ((key,),) = database.rows("SELECT key FROM sessions WHERE id = ?", session["id"])
    for table in TABLES:
        for row in rows[table]:
            _insert(database, table, {**row, "session": key})


def _insert(database: Database, table: str, row: Mapping[str, object]) -> None:
    if unknown := row.keys() - {*_columns(database, table), "key"}:
        raise ValueError(f"{table} has {', '.join(sorted(unknown))}, which a newer version wrote; update animegamer-rt")
    names = [name for name in row if name != "key"]
    marks = ", ".join("?" * len(names))
    database.rows(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", *(row[name] for name in names))


def _columns(database: Database, table: str) -> list[str]:
    return [name for _, name, *_ in database.rows(f"PRAGMA table_info({table})")]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk; Windows has no such call."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(folder: Path, error: OSError) -> StoreError:
    found, do = error.strerror or str(error), "make it writable, and make room there; the session is as it was"
    return StoreError("the other server's folder cannot be written", where=folder, found=found, do=do)
