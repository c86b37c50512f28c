"""`animegamer-rt serve` with disk and clock faults, controlled by files in the folder FAULTS.

`python faulty_server.py FAULTS serve ...`: while FAULTS/disk exists, the store's writes fail with the SQLite message in
it; the clock is off by the seconds in FAULTS/clock, and runs CLOCK_RATE times as fast, so that sessions age within
minutes. Its workers are `faulty_worker`. Everything else is the real server.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

WRITES = ("BEGIN IMMEDIATE", "INSERT", "UPDATE", "DELETE", "COMMIT")
"""Prefixes of the statements that fail. A disk that fails at COMMIT has accepted the statements before it."""


CLOCK_RATE = 1000.0
"""Sessions count as unused after half an hour, two seconds on this clock."""


def main(arguments: list[str]) -> int:
    """Runs the command after the first argument with a faulty disk and clock."""
    faults = Path(arguments[0])
    true_time, began = time.time, float(_read(faults / "began") or 0.0)

    def wrong_time() -> float:
        return began + CLOCK_RATE * (true_time() - began) + float(_read(faults / "clock") or 0.0)

    time.time = wrong_time  # Before anything binds the function as a default.

    from animegamer_rt.cli import main as animegamer_rt
    from animegamer_rt.serving.server import local_host
    from animegamer_rt.serving.store import database

    worker = str(Path(__file__).with_name("faulty_worker.py"))
    vars(local_host)["child_command"] = lambda module, *options: [sys.executable, worker, *options]

    class FailingConnection:
        """Wraps the store's connection; what does not fail goes through to SQLite."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._connection = sqlite3.connect(*arguments, **options)

        def execute(self, sql: str, values: Any = ()) -> Any:
            beginning, _, message = (_read(faults / "disk") or "").partition("|")
            if message and sql.strip().startswith(beginning or WRITES):
                raise sqlite3.OperationalError(message)
            return self._connection.execute(sql, values)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    class Sqlite:
        """The module `sqlite3` as the store uses it."""

        connect = FailingConnection
        Error = sqlite3.Error

    vars(database)["sqlite3"] = Sqlite
    return animegamer_rt(arguments[1:])


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
