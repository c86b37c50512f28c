"""Opens one SQLite file, locks it, upgrades its tables to this version, and writes it in transactions."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from animegamer_rt.errors import StoreError

from .errors import storage_error
from .schema import SCHEMA_VERSION, SCRIPTS

WAL_BYTES = 64 * 2**20
"""Size that the write-ahead log is truncated to after a checkpoint."""
MEANING_VERSION = 1
"""Of the rows' content, such as a scene's JSON. Raise it when equal tables hold what an older version would misread."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """An id that changes when the machine restarts; None if the system has none (Linux has one)."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of the store. Sessions used within the last `recent_s` are never touched.

    max_bytes: of the rows of all sessions. max_age_s: sessions unused for longer are deleted; None: never.
    min_free_bytes: disk space to leave free; the store deletes shots to get it, but never sessions.
    """

    max_bytes: int = 8 * 2**30
    max_age_s: float | None = None
    min_free_bytes: int = 256 * 2**20
    recent_s: float = 1800.0


def _require_folder(folder: Path) -> None:
    """Raises StoreError for a file, or a link to nowhere, in a folder's place."""
    if not folder.is_dir():
        found = f"a link to {os.readlink(folder)}, which is no folder" if folder.is_symlink() else "a file"
        raise StoreError("not a state folder", where=folder, found=found, do="remove it, or choose another folder")


class Database:
    """The open file. A `transaction` is written completely or not at all, and survives a crash of the process.

    Raises StoreError if the folder or file cannot be written, has a newer version, or is locked by another process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                # Players' texts and tokens' hashes: private to this user.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            elif not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            if path.parent.is_symlink() or path.parent.exists():
                _require_folder(path.parent)
            raise StoreError(
                "the state folder cannot be written",
                where=path.parent,
                found=error.strerror or str(error),
                do="make it and its files writable, or choose another folder",
            ) from error
        self._open: dict[Path, os.stat_result] = {}
        try:
            self.connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except sqlite3.Error as error:
            raise storage_error(error, path) from error
        try:
            self._prepare()
            self._open = {file: file.stat() for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()}
        except BaseException:
            self.connection.close()
            raise

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Run a statement; returns its rows as tuples. Raises StoreError."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise storage_error(error, self.path) from error

    @contextmanager
    def transaction(self, *, sync: bool = True) -> Iterator[None]:
        """Run all statements inside, or none: an error leaves the file unchanged. Raises StoreError.

        sync: wait until the data is on the disk. Otherwise a power cut within the next seconds may undo it.
        """
        self._check_in_place()
        self.rows(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        self.rows("BEGIN IMMEDIATE")
        try:
            yield
            self.rows("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already.
            if self.connection.in_transaction:
                self.rows("ROLLBACK")
            raise
        finally:
            self._note_sizes()

    def used_bytes(self) -> int:
        """Bytes of the file in use."""
        return self._bytes() - self.reusable_bytes()

    def reusable_bytes(self) -> int:
        """Free bytes inside the file, which the next rows reuse."""
        return self._pragma("freelist_count") * self._pragma("page_size")

    def missing_bytes(self, quota: Quota, wanted: int = 0) -> int:
        """How many bytes of rows must be deleted before `wanted` more can be written; 0 or less if they fit.

        Raises StoreError if the folder is gone.
        """
        folder = self.path.parent
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            found, do = error.strerror or str(error), "restore it, or restart the server"
            raise StoreError("the state folder is gone", where=folder, found=found, do=do) from error
        disk = quota.min_free_bytes - free - self.reusable_bytes()
        return wanted + max(disk, self.used_bytes() - quota.max_bytes)

    def shrink(self, slack: int, limit: int) -> None:
        """Return at most `limit` bytes of free pages to the disk, leaving `slack` bytes free in the file."""
        spare = min(self.reusable_bytes() - slack, limit) // self._pragma("page_size")
        if spare > 0:
            try:
                # As a script: SQLite frees one page per step, and `execute` takes a single step.
                self.connection.executescript(f"PRAGMA incremental_vacuum({spare}); PRAGMA wal_checkpoint(TRUNCATE)")
            except sqlite3.Error as error:
                raise storage_error(error, self.path) from error
            finally:
                self._note_sizes()

    def close(self) -> None:
        """Checkpoint the log into the file and close it."""
        self.connection.close()

    def _check_in_place(self) -> None:
        """Raise StoreError if the files were renamed or truncated: anything written then would be lost."""
        for path, before in self._open.items():
            try:
                now = path.stat()
                if not os.path.samestat(now, before):
                    found = "another file"
                elif now.st_size < before.st_size:
                    found = f"{before.st_size} bytes before, {now.st_size} now"
                else:
                    continue
            except OSError as error:
                found = error.strerror or str(error)
            raise StoreError(
                "the sessions were deleted, moved, replaced or truncated while the server was running",
                where=path,
                found=found,
                do="restore the same files; or restart the server with the sessions that are there now",
            )

    def _note_sizes(self) -> None:
        """Note how large the files are after our own writing: nobody else may shorten them."""
        for path, before in self._open.items():
            with suppress(OSError):
                if os.path.samestat(now := path.stat(), before):
                    self._open[path] = now

    def _bytes(self) -> int:
        """Bytes of the file after a checkpoint of the log."""
        return self._pragma("page_count") * self._pragma("page_size")

    def _pragma(self, name: str) -> int:
        return int(self.rows(f"PRAGMA {name}")[0][0])

    def _prepare(self) -> None:
        # Exclusive: SQLite takes the lock at the first read and keeps it until the process ends, however it ends. On
        # POSIX this process would lose it by opening and closing the file elsewhere, so nothing does that.
        self.rows("PRAGMA locking_mode = EXCLUSIVE")
        version = self._version()
        if version > SCHEMA_VERSION:
            raise StoreError(
                "the sessions were written by a newer version of animegamer-rt",
                where=self.path,
                found=f"schema version {version}",
                expected=f"at most {SCHEMA_VERSION}",
                do="update animegamer-rt, or choose another state folder; nothing was changed",
            )
        meaning = self._pragma("user_version")
        if meaning > MEANING_VERSION:
            raise StoreError(
                "the sessions hold what this version of animegamer-rt would misread",
                where=self.path,
                found=f"meaning {meaning}",
                expected=f"at most {MEANING_VERSION}",
                do="update animegamer-rt, or choose another state folder; nothing was changed",
            )
        self.rows("PRAGMA auto_vacuum = INCREMENTAL")  # only takes effect in an empty file
        self.rows("PRAGMA journal_mode = WAL")
        self.rows("PRAGMA foreign_keys = ON")
        self.rows(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        with self.transaction():
            for script in SCRIPTS[version:]:
                for statement in script:
                    self.rows(statement)
                self.rows("UPDATE store SET schema_version = schema_version + 1")
            self.rows(f"PRAGMA user_version = {MEANING_VERSION}")

    def _version(self) -> int:
        """The version of the tables; 0 of an empty file. Raises StoreError for tables that are not ours."""
        tables = {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return 0
        versions = self.rows("SELECT schema_version FROM store") if "store" in tables else []
        if len(versions) != 1 or not isinstance(versions[0][0], int):
            raise StoreError("not a file of sessions", where=self.path, do="move it away, or choose another folder")
        version: int = versions[0][0]
        return version
