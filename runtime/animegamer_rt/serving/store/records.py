"""What the store returns: a session, a turn, and the context that a worker needs to play one more turn.

Knows the game's values; nothing of SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from animegamer_rt.state.game import CharacterState, GameState
from animegamer_rt.state.scene import Scene
from animegamer_rt.state.turn_record import TurnRecord

from .errors import BundleMismatchError, EnginesMismatchError


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One game as it is stored. turns: how many are finished; character: after the last one; seed: of the next one.

    engines: what made the last turn (`Engines.identity`); None before the first turn, or if that is unknown.
    """

    id: str
    bundle_name: str
    bundle_fingerprint: str
    seed: int
    history_turns: int
    turns: int
    character: CharacterState
    closed: bool
    engines: str | None = None

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

    def require_engines(self, engines: str | None) -> None:
        """Raises EnginesMismatchError unless `engines` made the session's turns, or one of the two is unknown."""
        if engines is not None and self.engines not in (None, engines):
            raise EnginesMismatchError(
                "the session was played with other engines, so that its turns would not look the same",
                where=f"session {self.id}",
                found=self.engines,
                expected=engines,
                do="open a new session, or ask the operator to start the server with those engines, or with "
                "--continue-on-other-engines",
            )


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One finished turn. character: after it. seed: of its noise; a branch with a new seed has turns of the old one.

    scene: what a reader made of the instruction; None without a reader.
    """

    turn: int
    turn_id: str
    instruction: str
    seed: int
    game_state: GameState
    character: CharacterState
    scene: Scene | None = None


@dataclass(frozen=True, slots=True)
class StoredStart:
    """Turn 0 of a session that starts from a picture: its text in prompts, its shot (fp16 [226, D]), what it shows.

    scene: None where no reader recognised anybody.
    """

    text: str
    shot: bytes
    scene: Scene | None = None


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What came before a turn: `log` has the turns `first + 1` .. `turn - 1`, oldest first.

    Each has the text that prompts contain. character, scene: before the turn. start: turn 0, where the history window
    or a new prediction may need it.
    If the shots of the whole history window are stored, `log` is that window, and `shots` maps its turns to fp16
    [226, D], row-major. If one is missing, `first` is 0, `log` is complete and `shots` is empty: the worker predicts
    the shots again.
    """

    first: int
    log: tuple[TurnRecord, ...]
    shots: Mapping[int, bytes]
    character: CharacterState
    scene: Scene | None = None
    start: StoredStart | None = None
