"""The events of a turn, in order: Understood, StatePredicted, Progress, FrameReady, Done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .language.answers import Answer
from .state.game import CharacterState, GameState, Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`session` id; `turn` from 1; `sequence` from 0 within the turn."""

    session: str
    turn: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood(Event):
    """How the instruction was understood. Only for bundles with a reader: others play the text unchanged.

    scene: what the turn shows. unknown: words for things that the bundle cannot draw, in lower case; the scene is the
    nearest possible. answer: what changes and what is not possible, in codes with fields. text: what changes, in one
    line for people; the whole scene if it is the first, or nothing does. notice: a line about what is not possible,
    None if everything is.
    """

    scene: Scene
    unknown: tuple[str, ...]
    answer: tuple[Answer, ...]
    text: str
    notice: str | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StatePredicted(Event):
    """The state is known; denoising has not started.

    game_state: four strengths, -5..5. character: the values after this turn, 0..100. shown: the same for display, where
    a social or entertainment strength of 0 lowers that value by 5 for this turn only. motion_scope: input of the
    denoiser. history_turns: earlier turns in the prompt. shot: f32 [226, D]. The session keeps nothing else.
    """

    game_state: GameState
    character: CharacterState
    shown: CharacterState
    motion_scope: float
    history_turns: int
    shot: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """Denoise step `step` of `steps` is done; `seconds_left` estimates the remaining steps, without decoding."""

    step: int
    steps: int
    seconds_left: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FrameReady(Event):
    """Frame `index` (0..16): u8 [H, W, C] in the requested pixel format; valid for as long as it is referenced."""

    index: int
    frame: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSeconds:
    """Seconds inside each stage's engine; `total`: wall-clock time of the turn, without a prediction made ahead.

    reader: 0 for a bundle without one.
    """

    reader: float = 0.0
    predictor: float
    denoiser: float
    vae: float
    total: float

    def to_fields(self) -> dict[str, float]:
        """The seconds by name, without the reader's, as written to game.json."""
        return {"predictor": self.predictor, "denoiser": self.denoiser, "vae": self.vae, "total": self.total}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Event):
    """The turn is finished and part of the session."""

    seconds: StageSeconds
