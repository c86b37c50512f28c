"""Stores every player's game in one SQLite file: sessions, their turns, and the shots that their next turns need.

One thread of one process uses the file at a time.
"""

from __future__ import annotations

from .backup import Backup, back_up
from .database import Quota
from .errors import (
    BundleMismatchError,
    EnginesMismatchError,
    NoSuchTurnError,
    SessionClosedError,
    StoreFullError,
    StoreLockedError,
    UnknownSessionError,
    WrongTokenError,
)
from .retention import SweepResult
from .store import FILE, Store
from .turns import FinishedTurn, StoredSession, StoredStart, StoredTurn, TurnContext

__all__ = [
    "FILE",
    "Backup",
    "BundleMismatchError",
    "EnginesMismatchError",
    "TurnContext",
    "FinishedTurn",
    "NoSuchTurnError",
    "Quota",
    "SessionClosedError",
    "Store",
    "StoreFullError",
    "StoreLockedError",
    "StoredSession",
    "StoredStart",
    "StoredTurn",
    "SweepResult",
    "UnknownSessionError",
    "WrongTokenError",
    "back_up",
]
