"""Measures a bundle at play: the figures of its manifest's `quality`, and contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import Engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.events import FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import GameState
from animegamer_rt.state.instruction import Instruction

from .evaluation.contact_sheet import SheetRow, contact_sheet
from .held_out import JudgedTurn, PlayGame, evaluate, fit_motion_scale
from .judge.reading import Judge
from .world.captions import caption
from .world.render import render

SHEET_ROWS = 9

Clip = npt.NDArray[np.uint8]


def bundle_player(bundle: Bundle, engines: Engines, plan: str) -> PlayGame:
    """A function that plays games through the runtime's pipeline."""
    pipeline = Pipeline.open(bundle, engines, plan)

    def play(instructions: list[str], seed: int) -> list[tuple[Clip, GameState]]:
        session, played = Session.start(bundle, seed), []
        for text in instructions:
            frames: list[Clip] = []
            for event in pipeline.run_turn(session, Instruction.parse(text)):
                if isinstance(event, StatePredicted):
                    state = event.game_state
                elif isinstance(event, FrameReady):
                    frames.append(event.frame)
            played.append((np.stack(frames), state))
        return played

    return play


def measure_quality(
    bundle: Bundle, engines: Engines, judge: Judge, plans: Sequence[str], turns: int, games: int, pictures: Path
) -> dict[str, Any]:
    """The judge's figures of every plan; the first plan's clips go into contact sheets in `pictures`.

    As many clips of each level as there are turns set the thresholds between motion levels.
    """
    scale, figures = fit_motion_scale(clips_per_level=turns), {}
    for plan in plans:
        figures[plan], judged = evaluate(bundle_player(bundle, engines, plan), judge, scale, turns, games)
        if plan == plans[0]:
            _write_sheets(judged, pictures)
    return figures


def _write_sheets(judged: Sequence[JudgedTurn], folder: Path) -> None:
    """Write sheets of the single turns and of one game, each generated clip above the rendered one."""
    singles = [turn for turn in judged if turn.turn == 0][:SHEET_ROWS]
    contact_sheet([_row(turn) for turn in singles], folder / "pocket-turns.png")
    start = next((at for at, turn in enumerate(judged) if turn.turn == 1), 1) - 1
    game = [judged[start]]
    for turn in judged[start + 1 :]:
        if turn.turn == 0:
            break
        game.append(turn)
    contact_sheet([_row(turn) for turn in game], folder / "pocket-game.png")


def _row(turn: JudgedTurn) -> SheetRow:
    expected = caption(turn.scene)
    title = expected if turn.instruction == expected else f"{turn.instruction}  ->  {expected}"
    return SheetRow(title, {"generated": turn.clip, "rendered": render(turn.scene)})
