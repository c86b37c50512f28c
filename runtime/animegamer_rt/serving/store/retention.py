"""Decides what is deleted from the store by age and a quota of bytes.

Shots go before sessions: they can be predicted again from the instructions, exactly, at the cost of time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass

from .database import Database, Quota
from .turns import CHECKPOINT_TURNS

CLOCK_STEP_S = 3600.0
"""A session in use was used within the hour. If its row says otherwise, the clock was changed."""
SWEEP_SESSIONS = 50
"""Most sessions that one sweep deletes or empties."""
THINNED_SHOTS = 1000
"""Most shots of checkpoints that are dropped at a time."""
RESTAMP_SESSIONS = 1000
"""Most sessions whose time of use one sweep corrects."""
SWEEP_BYTES = 8 * 2**20
"""Bytes freed after which a sweep stops, as the server's loop waits for it; 4 MiB took 85 ms on 2 busy cores."""
SLACK_BYTES = 16 * 2**20
"""Free bytes left in the file for the next turns."""
SHRINK_BYTES = 2**20
"""Most bytes that one sweep returns to the disk; that took up to 95 ms per MiB on 2 busy cores."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep. more: there is more to delete, so sweep again soon."""

    removed: tuple[str, ...]
    """Ids of the deleted sessions."""
    shots_dropped: tuple[str, ...]
    """Ids of the sessions whose shots were deleted."""
    freed_bytes: int
    stored_bytes: int
    more: bool


def drop_idle_shots(
    database: Database, quota: Quota, wanted: int, now: float, in_use: Collection[str]
) -> tuple[str, ...]:
    """Drops shots, longest unused sessions first, until `wanted` bytes fit or a sweep's limit is reached; returns ids.

    Callers hold the transaction.
    """
    _note(database, in_use)
    return _drop_idle_shots(database, quota, wanted, now)


def _drop_idle_shots(database: Database, quota: Quota, wanted: int, now: float) -> tuple[str, ...]:
    before, dropped = database.used_bytes(), list[str]()
    sessions = _idle(database, now - quota.recent_s, now + quota.recent_s, only="key IN (SELECT session FROM shots)")
    for key, session in sessions:
        if database.missing_bytes(quota, wanted) <= 0 or _enough(database, before, len(dropped)):
            break
        database.rows("DELETE FROM shots WHERE session = ?", key)
        dropped.append(session)
    return tuple(dropped)


def drop_checkpoints(database: Database, quota: Quota, wanted: int) -> None:
    """Thins the checkpoints of all sessions evenly until `wanted` bytes fit or a sweep's limit is hit.

    Every other one goes first, then every other one of the rest: the distance doubles, and no game is left without any
    while another has them all. Callers hold the transaction.
    """
    if database.missing_bytes(quota, wanted) <= 0:
        return
    before = database.used_bytes()
    number = f"((turn + {CHECKPOINT_TURNS - 1}) / {CHECKPOINT_TURNS})"  # of the checkpoint to which a shot belongs
    thinned = f"SELECT rowid FROM checkpoints ORDER BY {number} & -{number}, rowid LIMIT {THINNED_SHOTS}"
    for (row,) in database.rows(thinned):
        if database.missing_bytes(quota, wanted) <= 0 or _enough(database, before, 0):
            break
        database.rows("DELETE FROM checkpoints WHERE rowid = ?", row)


def sweep(database: Database, quota: Quota, now: float, in_use: Collection[str]) -> SweepResult:
    """Deletes sessions that are too old; then shots, then sessions, until the quota holds. Closed ones go first.

    Changing the clock costs no session in use. A session last used in the future has no age, and goes last.
    """
    before, removed = database.used_bytes(), list[str]()
    too_old = None if quota.max_age_s is None else now - max(quota.max_age_s, quota.recent_s)
    with database.transaction():
        _note(database, in_use)
        _restamp(database, now)
        for key, session in [] if too_old is None else _idle(database, too_old):
            if _enough(database, before, len(removed)):
                break
            _remove(database, key)
            removed.append(session)
        enough = _enough(database, before, len(removed))
        dropped = () if enough else _drop_idle_shots(database, quota, 0, now)
        if not _enough(database, before, len(removed) + len(dropped)):
            drop_checkpoints(database, quota, 0)
        for key, session in _idle(database, now - quota.recent_s, now + quota.recent_s):
            full = database.used_bytes() > quota.max_bytes
            if not full or _enough(database, before, len(removed) + len(dropped)):
                break
            _remove(database, key)
            removed.append(session)
    after = database.used_bytes()
    more = _enough(database, before, len(removed) + len(dropped))
    if not more:
        database.shrink(SLACK_BYTES, SHRINK_BYTES)
    return SweepResult(tuple(removed), dropped, before - after, after, more)


def _enough(database: Database, before: int, sessions: int) -> bool:
    """Whether the limits of one sweep are reached."""
    return sessions >= SWEEP_SESSIONS or before - database.used_bytes() >= SWEEP_BYTES


def _note(database: Database, in_use: Collection[str]) -> None:
    """List the sessions in use for the statements of this sweep: once, as there may be many."""
    database.rows("CREATE TEMP TABLE IF NOT EXISTS in_use (id TEXT PRIMARY KEY) WITHOUT ROWID")
    database.rows("DELETE FROM temp.in_use")
    database.rows("INSERT INTO temp.in_use SELECT value FROM json_each(?)", json.dumps(list(in_use)))


def _restamp(database: Database, now: float) -> None:
    """Some of those with a wrong time: the next sweeps do the rest, and leave them alone meanwhile."""
    sql = (
        "UPDATE sessions SET used = ? WHERE key IN (SELECT key FROM sessions WHERE abs(used - ?) > ? "
        "AND id IN temp.in_use LIMIT ?)"
    )
    database.rows(sql, now, now, CLOCK_STEP_S, RESTAMP_SESSIONS)


def _idle(
    database: Database,
    used_before: float,
    or_after: float = math.inf,
    only: str = "TRUE",
) -> list[tuple[int, str]]:
    """Key and id of the sessions last used before one time or after another: closed ones first, then oldest first.

    Limited to what one sweep may empty, as the server's loop waits for it.
    """
    sql = (
        f"SELECT key, id FROM sessions WHERE (used < ? OR used > ?) AND {only} "
        "AND id NOT IN temp.in_use ORDER BY closed DESC, used LIMIT ?"
    )
    return database.rows(sql, used_before, or_after, SWEEP_SESSIONS)


def _remove(database: Database, key: int) -> None:
    database.rows("DELETE FROM sessions WHERE key = ?", key)
