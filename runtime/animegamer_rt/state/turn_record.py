"""A finished turn as later turns need it: the same record in a session, in the store's answers and in a worker's jobs.

Knows nothing of how it is stored or sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from .game import GameState
from .scene import Scene


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One finished turn: the instruction's text, the predicted state, and the scene if a reader understood one."""

    text: str
    game_state: GameState
    scene: Scene | None = None

    @property
    def prompt_text(self) -> str:
        """The turn's text in the prompts of later turns: the scene's caption, or the instruction itself."""
        return self.text if self.scene is None else self.scene.caption
