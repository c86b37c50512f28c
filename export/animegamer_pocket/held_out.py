"""Measures a bundle on held-out instructions and games, as the judge sees them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np

from animegamer_export.evaluate.metrics import share
from animegamer_export.evaluate.turns import plan_engines
from animegamer_rt.api import Player
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.engine_config import DEFAULT_CONFIG
from animegamer_rt.errors import InstructionError
from animegamer_rt.state.game import GameState

from .evaluation.motion import LEVELS, MotionScale, fit_scale, motion_amount, motion_figures
from .judge.reading import Judge, Reading
from .world.captions import caption, said_parts
from .world.render import render
from .world.sampling import sample_game, sample_scenes
from .world.scene import DEFAULT_OUTFIT, FRAMES, HEIGHT, WIDTH, Scene, follow, strengths

NOTHING = np.zeros((FRAMES, HEIGHT, WIDTH, 3), np.uint8)
POSITION_TOLERANCE_PX = 16
"""A turn starts where the last ended if the judge reads a position at most this far off (9 % of the width)."""
SEED, TURNS = 2024, 5


@dataclasses.dataclass(frozen=True, slots=True)
class JudgedTurn:
    """A played turn, the scene it should show, and the judge's reading. amount: mean motion, px per frame."""

    scene: Scene
    instruction: str
    state: GameState
    reading: Reading
    amount: float


def fit_motion_scale(clips_per_level: int, motions: Sequence[str]) -> MotionScale:
    """Fits the thresholds between motion levels on rendered training clips."""
    scenes = [
        dataclasses.replace(scene, level=1 + index % LEVELS)
        for index, scene in enumerate(sample_scenes(clips_per_level * LEVELS, seed=11, motions=motions))
    ]
    return fit_scale([motion_amount(render(scene)) for scene in scenes], [scene.level for scene in scenes])


def held_out_turns(count: int, seed: int, motions: Sequence[str]) -> list[tuple[Scene, str]]:
    """First turns with combinations excluded from training, as reference captions; levels cycle through 1..5."""
    turns = []
    for index, scene in enumerate(sample_scenes(count, seed, train=False, motions=motions)):
        scene = follow(None, dataclasses.replace(scene, level=1 + index % LEVELS))
        turns.append((scene, caption(scene)))
    return turns


def held_out_games(count: int, turns: int, seed: int, motions: Sequence[str]) -> list[list[tuple[Scene, str]]]:
    """Games whose last turn has a combination excluded from training."""
    rng = random.Random(seed)
    return [sample_game(rng, turns, train=False, motions=motions) for _ in range(count)]


def judge_game(player: Player, judge: Judge, game: Sequence[tuple[Scene, str]], seed: int) -> list[JudgedTurn]:
    """Plays a game from its start and judges every turn. One that is refused shows nothing."""
    started, played = player.start(seed=seed), []
    for _, instruction in game:
        try:
            clip = started.turn(instruction)
            played.append((clip.frames, clip.state))
        except InstructionError:
            played.append((NOTHING, GameState(0, 0, 0, 0)))
    readings = judge.read(np.stack([frames for frames, _ in played]))
    return [
        JudgedTurn(scene, instruction, state, reading, motion_amount(frames))
        for (scene, instruction), (frames, state), reading in zip(game, played, readings, strict=True)
    ]


def measure_quality(bundle: Bundle, judge: Judge, turns: int, games: int) -> dict[str, dict[str, object]]:
    """All figures of every measured plan but `exact` on held-out instructions: a manifest's `quality`.

    All plans play the same turns with the same seeds. Only motions that the bundle draws are asked for. The thresholds
    between motion levels are fitted on as many clips of each level as there are turns.
    """
    engines_of = plan_engines(bundle, DEFAULT_CONFIG)
    scale = fit_motion_scale(turns, bundle.manifest.world.motions)
    plans = [plan for plan, entry in bundle.manifest.plans.items() if plan != EXACT and entry.fidelity]
    return {plan: _figures(Player(bundle, engines_of(plan), plan=plan), judge, scale, turns, games) for plan in plans}


def _figures(player: Player, judge: Judge, scale: MotionScale, single_turns: int, games: int) -> dict[str, object]:
    motions = player.bundle.manifest.world.motions
    singles = [
        judge_game(player, judge, [turn], SEED + index)[0]
        for index, turn in enumerate(held_out_turns(single_turns, SEED, motions))
    ]
    longer = [
        judge_game(player, judge, game, SEED + 500 + index)
        for index, game in enumerate(held_out_games(games, TURNS, SEED + 1, motions))
    ]
    judged = singles + [turn for game in longer for turn in game]
    return {
        "seed": SEED,
        "held_out_single_turns": len(singles),
        "games": len(longer),
        "turns_per_game": TURNS,
        "instruction": instruction_figures(singles),
        "motion": motion_figures([turn.amount for turn in singles], [turn.scene.level for turn in singles], scale),
        "states": {"all_four": share(turn.state == strengths(turn.scene) for turn in judged)},
        "game": consistency_figures(longer),
    }


def instruction_figures(judged: Sequence[JudgedTurn]) -> dict[str, float | None]:
    """The share of turns that show the instruction, by field, and the mean of the fields."""
    figures = {
        "characters": share(_all_there(turn) for turn in judged),
        "outfits": share(_outfits_right(turn) for turn in judged),
        "place": share(turn.reading.place == turn.scene.place for turn in judged),
        "day_or_night": share(turn.reading.night == turn.scene.night for turn in judged),
        "motion": share(turn.reading.motion == turn.scene.motion for turn in judged),
    }
    known = [value for value in figures.values() if value is not None]
    return {**figures, "mean": round(float(np.mean(known)), 4) if known else None}


def consistency_figures(games: Sequence[Sequence[JudgedTurn]]) -> dict[str, object]:
    """How often later turns keep what their instruction does not mention, and the score by turn number."""
    later = [turn for game in games for turn in game[1:]]

    def unsaid(part: str) -> list[JudgedTurn]:
        return [turn for turn in later if part not in said_parts(turn.instruction)]

    dressed = [turn for turn in unsaid("outfit") if any(outfit != DEFAULT_OUTFIT for outfit in turn.scene.outfits)]
    length = max((len(game) for game in games), default=0)
    return {
        "characters_kept": share(_all_there(turn) for turn in unsaid("characters")),
        "place_kept": share(turn.reading.place == turn.scene.place for turn in unsaid("place")),
        "day_or_night_kept": share(turn.reading.night == turn.scene.night for turn in unsaid("time")),
        "outfit_kept": share(_outfits_right(turn) for turn in dressed),
        "position_kept": share(_position_kept(turn) for turn in unsaid("position")),
        "instruction_mean_by_turn": [
            instruction_figures([game[index] for game in games if index < len(game)])["mean"] for index in range(length)
        ],
    }


def _position_kept(turn: JudgedTurn) -> bool:
    seen = turn.reading.start_x
    return seen is not None and abs(seen - turn.scene.start_x) <= POSITION_TOLERANCE_PX


def _all_there(turn: JudgedTurn) -> bool:
    """Exactly the requested characters are seen, once each."""
    return turn.reading.shows_once_each(frozenset(turn.scene.characters))


def _outfits_right(turn: JudgedTurn) -> bool:
    """At least one requested character is seen, and all of those seen wear the right clothes."""
    asked = dict(zip(turn.scene.characters, turn.scene.outfits, strict=True))
    seen = {name: outfit for name, outfit in turn.reading.outfits.items() if name in asked}
    return bool(seen) and all(asked[name] == outfit for name, outfit in seen.items())
