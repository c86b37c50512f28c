"""Plays the turns that are timed: of one game with a full history, or the games of a suite.

Knows pipelines, clocks and meters; nothing of records. Ctrl-C ends the measurement and keeps the turns so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice

from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.energy import EnergyMeter
from animegamer_rt.profiling.trace import TurnTrace, trace_turn
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

from .suite import Suite

SEED = 7
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """game: number of the game, from 1; turn: its number in the game. at: start, in seconds since the timed part."""

    game: int
    turn: int
    at: float
    trace: TurnTrace


@dataclass(frozen=True, slots=True)
class TimedTurns:
    """The timed turns in order, the seconds from the first one's start to the last one's end, and whether all came."""

    turns: list[TimedTurn]
    seconds: float
    complete: bool = True


def measure_turns(pipeline: Pipeline, turns: int, meter: EnergyMeter, clock: Clock = time.perf_counter) -> TimedTurns:
    """Play the bundle's example instructions: `history_turns` + 1 turns untimed, then `turns` timed and metered."""
    session = Session.start(pipeline.bundle, seed=SEED)
    texts = cycle(example_script(pipeline.bundle.manifest.world))
    for text in islice(texts, session.history_turns + 1):
        _play(pipeline, session, text)
    return _timed(pipeline, ((1, session, text) for text in islice(texts, turns)), meter, clock, lambda *_: False)


def measure_suite(pipeline: Pipeline, suite: Suite, meter: EnergyMeter, clock: Clock = time.perf_counter) -> TimedTurns:
    """Play a suite's games until both its seconds and its turns are reached; its last game is the warm-up, untimed."""
    window = pipeline.bundle.manifest.compatibility.history_turns
    warm_up = Session.start(pipeline.bundle, seed=suite.seed - 1)
    for text in islice(cycle(suite.games[-1]), window + 1):
        _play(pipeline, warm_up, text)
    return _timed(
        pipeline,
        _games(pipeline, suite),
        meter,
        clock,
        lambda turns, seconds: turns >= suite.turns and seconds >= suite.seconds,
    )


def _games(pipeline: Pipeline, suite: Suite) -> Iterator[tuple[int, Session, str]]:
    for number, game in zip(count(1), cycle(suite.games), strict=False):
        session = Session.start(pipeline.bundle, seed=suite.seed + number - 1)
        for text in game:
            yield number, session, text


def _timed(
    pipeline: Pipeline,
    plays: Iterator[tuple[int, Session, str]],
    meter: EnergyMeter,
    clock: Clock,
    enough: Callable[[int, float], bool],
) -> TimedTurns:
    turns: list[TimedTurn] = []
    complete, ended = True, 0.0
    with meter:
        started = clock()
        try:
            for game, session, text in plays:
                at = clock() - started
                trace = _play(pipeline, session, text)
                turns.append(TimedTurn(game, session.turns, round(at, 4), trace))
                ended = clock() - started
                if enough(len(turns), ended):
                    break
        except KeyboardInterrupt:
            if not turns:
                raise
            complete = False
    return TimedTurns(turns, ended, complete)


def _play(pipeline: Pipeline, session: Session, text: str) -> TurnTrace:
    return trace_turn(pipeline.run_turn(session, Instruction.parse(text)))
