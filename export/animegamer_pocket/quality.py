"""Measures a bundle's quality by playing it: the figures of its manifest's `quality`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import Engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import InstructionError
from animegamer_rt.events import FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import GameState, Instruction

from .held_out import PlayGame, evaluate, fit_motion_scale
from .judge.reading import Judge
from .world.scene import FRAMES, HEIGHT, WIDTH

Clip = npt.NDArray[np.uint8]

NOTHING = np.zeros((HEIGHT, WIDTH, 3), np.uint8)


def bundle_player(bundle: Bundle, engines: Engines, plan: str) -> PlayGame:
    """A function that plays games through the runtime's pipeline."""
    pipeline = Pipeline.open(bundle, engines, plan)

    def play(instructions: list[str], seed: int) -> list[tuple[Clip, GameState]]:
        session, played = Session.start(bundle, seed), []
        for text in instructions:
            frames: list[Clip] = []
            state = GameState(0, 0, 0, 0)
            with suppress(InstructionError):  # a turn that is refused shows nothing
                for event in pipeline.run_turn(session, Instruction.parse(text)):
                    if isinstance(event, StatePredicted):
                        state = event.game_state
                    elif isinstance(event, FrameReady):
                        frames.append(event.frame)
            played.append((np.stack(frames or [NOTHING] * FRAMES), state))
        return played

    return play


def measure_quality(
    bundle: Bundle, engines: Engines, judge: Judge, plans: Sequence[str], turns: int, games: int
) -> dict[str, Any]:
    """The judge's figures of every plan.

    The thresholds between motion levels are fitted on as many clips of each level as there are turns.
    """
    scale = fit_motion_scale(clips_per_level=turns)
    return {plan: evaluate(bundle_player(bundle, engines, plan), judge, scale, turns, games) for plan in plans}
