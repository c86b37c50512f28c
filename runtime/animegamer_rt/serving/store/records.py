"""What the store hands out: a session, a turn, and all that a worker needs to play one more turn.

Knows the game's values; nothing of SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from animegamer_rt.state.game import CharacterState, GameState

from .errors import BundleMismatchError


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One game as it is kept. turns: how many are finished; character: the values after the last; seed: of the next."""

    id: str
    bundle_name: str
    bundle_fingerprint: str
    seed: int
    history_turns: int
    turns: int
    character: CharacterState
    closed: bool

    def require_bundle(self, name: str, fingerprint: str) -> None:
        """Raises BundleMismatchError unless the session was played with the bundle of this fingerprint."""
        if fingerprint != self.bundle_fingerprint:
            raise BundleMismatchError(
                "the session was played with another bundle",
                where=f"session {self.id}",
                found=f"{self.bundle_name} ({self.bundle_fingerprint})",
                expected=f"{name} ({fingerprint})",
                do="start the server with the bundle it was played with, or open a new session",
            )


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One finished turn. `character` is after it.

    `seed` is the one it was drawn with: a branch with a new seed still has turns of the old one.
    """

    turn: int
    turn_id: str
    instruction: str
    seed: int
    game_state: GameState
    character: CharacterState


class HistoryRow(NamedTuple):
    """A past turn as a prompt sees it; a plain list of five on the wire."""

    text: str
    motion_level: int
    social: int
    entertainment: int
    stamina: int


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What came before a turn: `log` holds the turns `first + 1` .. `turn - 1`, oldest first.

    With the shots of the whole window at hand, `log` is just that window and `shots` maps its turn numbers to fp16
    [226, D] row-major. If one is missing, `first` is 0, the log complete and `shots` empty: they are predicted again.
    `character` is the one before the turn.
    """

    first: int
    log: tuple[HistoryRow, ...]
    shots: Mapping[int, bytes]
    character: CharacterState
