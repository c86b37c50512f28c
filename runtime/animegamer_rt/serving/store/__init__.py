"""Every player's game as rows of one SQLite file: sessions, their turns, the shots their next turns need.

Knows rows; nothing of sockets, engines or workers. One process has the file at a time, and one thread of it.
"""

from __future__ import annotations

from .errors import (
    BundleMismatchError,
    NoSuchTurnError,
    SessionClosedError,
    StoreFullError,
    StoreLockedError,
    UnknownSessionError,
    WrongTokenError,
)
from .records import HistoryRow, StoredSession, StoredTurn, TurnContext
from .retention import ALL, WINDOW, Quota, ShotRetention, SweepResult, read_keep_shots
from .store import FILE, Store

__all__ = [
    "ALL",
    "FILE",
    "WINDOW",
    "BundleMismatchError",
    "TurnContext",
    "ShotRetention",
    "HistoryRow",
    "NoSuchTurnError",
    "Quota",
    "SessionClosedError",
    "Store",
    "StoreFullError",
    "StoreLockedError",
    "StoredSession",
    "StoredTurn",
    "SweepResult",
    "UnknownSessionError",
    "WrongTokenError",
    "read_keep_shots",
]
