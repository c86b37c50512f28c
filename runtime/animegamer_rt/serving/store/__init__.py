"""Stores every player's game in one SQLite file: sessions, their turns, and the shots that their next turns need.

One thread of one process uses the file at a time.
"""

from __future__ import annotations

from .database import Quota
from .errors import SessionRefusedError, StoreFullError, StoreLockedError
from .retention import SweepResult
from .store import FILE, Store
from .turns import CHECKPOINT_TURNS, StoredSession, StoredStart, StoredTurn, TurnContext

__all__ = [
    "CHECKPOINT_TURNS",
    "FILE",
    "TurnContext",
    "Quota",
    "Store",
    "SessionRefusedError",
    "StoreFullError",
    "StoreLockedError",
    "StoredSession",
    "StoredStart",
    "StoredTurn",
    "SweepResult",
]
