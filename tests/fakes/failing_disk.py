"""A layer between the store and SQLite that fails, or is slow, as a disk is: full, read-only or broken."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from animegamer_rt.serving.store import Store

DISKS = {
    "full": "database or disk is full",
    "read-only": "attempt to write a readonly database",
    "broken": "disk I/O error",
    "slow": None,
}
"""Kind of disk -> SQLite's message; None: nothing fails, it only takes its time."""
STATEMENTS = {
    "at the start": lambda sql: sql.startswith("BEGIN"),
    "in the middle": lambda sql: sql.startswith(("INSERT", "UPDATE", "DELETE")),
    "at the commit": lambda sql: sql == "COMMIT",
}
"""Where in a transaction it fails."""
SLOW_S = 0.02


class FailingDisk:
    """Stands in for the store's connection; what is not a failure goes through to SQLite."""

    def __init__(self, store: Store) -> None:
        self._connection: Any = store.database.connection
        self._fails: Callable[[str], bool] | None = None
        self._message: str | None = None
        self.failed = 0
        store.database.connection = self  # type: ignore[assignment]

    def turns(self, kind: str, where: str) -> None:
        """From now on the disk is of a kind of DISKS, for the statements of STATEMENTS[where]."""
        self._message, self._fails = DISKS[kind], STATEMENTS[where]

    def works_again(self) -> None:
        """From now on the disk works."""
        self._fails = None

    def execute(self, sql: str, values: Any = ()) -> Any:
        if self._fails is not None and self._fails(sql.strip()):
            self.failed += 1
            if self._message is not None:
                raise sqlite3.OperationalError(self._message)
            time.sleep(SLOW_S)
        return self._connection.execute(sql, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def after_a_kill(state: Path, copy: Path) -> Store:
    """The store as it is found when its server was killed just now."""
    shutil.copytree(state, copy)
    return Store(copy)
