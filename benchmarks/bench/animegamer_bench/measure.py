"""Plays the turns that are timed: of one game with a full history, or the games of a suite; and measures new processes.

Knows pipelines, clocks and meters; nothing of records. Ctrl-C ends the measurement and keeps the turns so far.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path

from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.child_process import child_command, describe_failure
from animegamer_rt.profiling.nvml import EnergyMeter
from animegamer_rt.profiling.trace import TurnTrace, trace_turn
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

from .presets import Suite

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


def measure_fresh_process(bundle: Bundle, plan: str, engines: EngineConfig) -> dict[str, float | None]:
    """Record fields of a process to its first prompt, and of one that plays two turns and writes their clips.

    Raises BackendError.
    """
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        engine_args = [str(bundle.folder), plan, str(Path(folder) / "ready"), *engines.to_args()]
        _run(child_command("animegamer_rt.play.command", *engine_args))
        ready = time.perf_counter() - start
        script, game = Path(folder) / "two-turns.txt", Path(folder) / "game"
        script.write_text("\n".join(example_script(bundle.manifest.world)[:2]), encoding="utf-8")
        command = child_command("animegamer_rt", "play", "--bundle", str(bundle.folder), "--plan", plan)
        command += engines.to_args()
        peak = _run([*command, "--instructions", str(script), "--out", str(game)])
        first = read_json(game / "game.json")["turns"][0]["seconds"]["total"]
    return {
        "start_to_prompt_seconds": round(ready, 3),
        "first_turn_of_process_seconds": first,
        "host_memory_peak_mib": peak,
    }


def _run(command: list[str]) -> float | None:
    """Run a command to its end; its peak memory in MiB, None where the system does not tell. Raises BackendError."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        peak = None
        try:
            if sys.platform == "win32":
                process.wait()
            else:
                _, status, usage = os.wait4(process.pid, 0)  # its own peak, not that of all plans measured so far
                process.returncode = os.waitstatus_to_exitcode(status)
                peak = round(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**20, 1)
        except BaseException:  # an interrupt may have been sent to this process alone
            process.kill()
            process.wait()
            raise
        if process.returncode:
            stderr.seek(0)
            output = stderr.read().decode(errors="replace")
            raise BackendError("a fresh process cannot play this bundle", found=describe_failure(output))
    return peak
