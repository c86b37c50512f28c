"""What a turn says while it runs: typed events, each with session, turn and sequence number.

Knows nothing of how a turn is run, shown or sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .state.game import CharacterState, GameState


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`session` id; `turn` from 1; `sequence` from 0 within the turn."""

    session: str
    turn: int
    sequence: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StatePredicted(Event):
    """As soon as the state is known, before the first denoise step.

    character: the running values after this turn; shown: the same with the quiet-turn rule, for display. shot: what is
    drawn, f32 [226, D]; with it, all is known that the session will keep of the turn.
    """

    game_state: GameState
    character: CharacterState
    shown: CharacterState
    motion_scope: float
    history_turns: int
    shot: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """After denoise step `step` of `steps`; `seconds_left` covers the denoiser only."""

    step: int
    steps: int
    seconds_left: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FrameReady(Event):
    """Frame `index` (0..16), u8 [H, W, C] in the asked pixel format; valid for as long as it is held."""

    index: int
    frame: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Seconds inside each stage's engine; `total` is the wall clock of the turn, without a prediction made ahead."""

    predictor: float
    denoiser: float
    vae: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Event):
    """The turn is part of the session now."""

    seconds: StageSeconds
