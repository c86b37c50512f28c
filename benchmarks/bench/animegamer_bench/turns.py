"""Plays turns in this process: the timed ones, and those that the quality gate judges.

Ctrl-C ends a measurement and keeps the turns so far.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import Engines, Frames
from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT, RANDOM_WEIGHTS
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, InstructionError
from animegamer_rt.events import Done, FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.child_process import child_command
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction, Scene

from .records import STAGES
from .suites import Suite

KEPT_CHARACTERS = 500
"""Of what a process that failed has printed."""

SEED, GATE_SEED = 7, 100
SAME_SSIM = 0.99
"""Minimum SSIM of two plays of a turn on a nondeterministic device."""
SSIM_MARGIN = 0.05
"""How far below the bundle's mean for a plan a few turns may be: single turns of pocket vary this much."""
_WINDOW = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
_WINDOW /= _WINDOW.sum()
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2

Clock = Callable[[], float]
Clips = Sequence[Frames]
"""u8 [17, H, W, 3] each."""


@dataclass(frozen=True, slots=True)
class TimedTurns:
    """rows: one per turn, by `records.SAMPLE_COLUMNS`. seconds: from the first turn's start to the last one's end."""

    rows: list[dict[str, float]]
    seconds: float
    complete: bool = True

    @property
    def columns(self) -> dict[str, list[float]]:
        """The rows as columns, in seconds to five digits."""
        return {name: [round(row[name], 5) for row in self.rows] for name in self.rows[0]}


def measure_turns(pipeline: Pipeline, turns: int, clock: Clock = time.perf_counter) -> TimedTurns:
    """Plays the bundle's example instructions: `history_turns` + 1 turns of warm-up, then `turns` timed ones."""
    session = Session.start(pipeline.bundle, seed=SEED)
    texts = cycle(example_script(pipeline.bundle.manifest.world))
    for text in islice(texts, session.history_turns + 1):
        time_turn(pipeline, session, text)
    return _timed(pipeline, ((1, session, text) for text in texts), clock, turns)


def measure_suite(pipeline: Pipeline, suite: Suite, clock: Clock = time.perf_counter) -> TimedTurns:
    """Plays a suite's games until both its seconds and its turns are reached; its last game is the warm-up."""
    warm_up = Session.start(pipeline.bundle, seed=suite.seed - 1)
    for text in islice(cycle(suite.games[-1]), pipeline.bundle.manifest.compatibility.history_turns + 1):
        time_turn(pipeline, warm_up, text)
    return _timed(pipeline, _games(pipeline.bundle, suite), clock, suite.turns, suite.seconds)


def _games(bundle: Bundle, suite: Suite) -> Iterator[tuple[int, Session, str]]:
    for number, game in zip(count(1), cycle(suite.games), strict=False):
        session = Session.start(bundle, seed=suite.seed + number - 1)
        for text in game:
            yield number, session, text


def _timed(
    pipeline: Pipeline,
    plays: Iterator[tuple[int, Session, str]],
    clock: Clock,
    least_turns: int,
    least_seconds: float = 0.0,
) -> TimedTurns:
    rows: list[dict[str, float]] = []
    complete, ended = True, 0.0
    started = clock()
    try:
        while len(rows) < least_turns or ended < least_seconds:
            game, session, text = next(plays)
            at = clock() - started
            turn = time_turn(pipeline, session, text)
            rows.append({"game": game, "turn": session.turns, "at": round(at, 4), **turn})
            ended = clock() - started
    except KeyboardInterrupt:
        if not rows:
            raise
        complete = False
    return TimedTurns(rows, ended, complete)


def time_turn(pipeline: Pipeline, session: Session, text: str) -> dict[str, float]:
    """Plays a turn; its columns of `records.SAMPLE_COLUMNS` in seconds.

    A text that the bundle's reader refuses keeps the scene, so that a suite has the same turns whatever is understood.
    Raises InstructionError for one that begins a game.
    """
    try:
        return _time_turn(pipeline, session, text)
    except InstructionError:
        if session.scene is None:
            raise
        return _time_turn(pipeline, session, text, shown=session.scene)


def _time_turn(pipeline: Pipeline, session: Session, text: str, shown: Scene | None = None) -> dict[str, float]:
    started, state, frame = time.perf_counter(), 0.0, 0.0
    for event in pipeline.run_turn(session, Instruction.parse(text), shown=shown):
        match event:
            case StatePredicted():
                state = time.perf_counter() - started
            case FrameReady():
                frame = frame or time.perf_counter() - started
            case Done():
                stages = {stage: getattr(event.seconds, stage) for stage in STAGES}
                return {"seconds": event.seconds.total, **stages, "to_state": state, "to_first_frame": frame}
    raise AssertionError("the turn did not finish")


def measure_fresh_process(bundle: Bundle, plan: str, engines: EngineConfig) -> dict[str, float | None]:
    """Record fields of a process up to its first prompt, and of one that plays two turns and writes their clips.

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
        peak = _run([*command, *engines.to_args(), "--instructions", str(script), "--out", str(game)])
        first = read_json(game / "game.json")["turns"][0]["seconds"]["total"]
    return {
        "start_to_prompt_seconds": round(ready, 3),
        "first_turn_of_process_seconds": first,
        "host_memory_peak_mib": peak,
    }


def _run(command: list[str]) -> float | None:
    """Runs a command to its end; its peak memory in MiB, None if the system does not report it. Raises BackendError."""
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
        except BaseException:  # an interrupt may have been sent to this process only
            process.kill()
            process.wait()
            raise
        if process.returncode:
            stderr.seek(0)
            output = stderr.read().decode(errors="replace")
            raise BackendError("a fresh process cannot play this bundle", found=describe_failure(output))
    return peak


def play_gate(pipeline: Pipeline, texts: Sequence[str]) -> Clips:
    """The clips of one turn per text, all in one new game."""
    session = Session.start(pipeline.bundle, seed=GATE_SEED)
    turns = (pipeline.run_turn(session, Instruction.parse(text)) for text in texts)
    return [np.stack([event.frame for event in turn if isinstance(event, FrameReady)]) for turn in turns]


def judge(pipeline: Pipeline, exact: Callable[[], Engines], texts: Sequence[str], before: Clips) -> dict[str, Any]:
    """The record's field `quality_gate`: whether turns before and after the timed ones show the expected frames.

    exact: opens the engines of the plan `exact`. before: from `play_gate`. The turns are repeated: a deterministic
    device gives the same bytes. They are also played with the plan `exact`, to which a cheaper plan must be as close as
    its bundle claims. A failing run is marked, never dropped.
    """
    after = play_gate(pipeline, texts)
    hashes, again = ([hashlib.sha256(clip.tobytes()).hexdigest() for clip in clips] for clips in (before, after))
    repeated = 1.0 if hashes == again else _similarity(before, after)
    result: dict[str, Any] = {
        "turns": len(texts),
        "seed": GATE_SEED,
        "frames_sha256": hashes,
        "deterministic": hashes == again,
        "ssim_repeated": round(repeated, 4),
        "ssim_against_exact": None,
        "ssim_needed": None,
        "passed": repeated >= SAME_SSIM,
    }
    manifest = pipeline.bundle.manifest
    told = manifest.plans[pipeline.plan_name].fidelity.get("ssim")
    if pipeline.plan_name != EXACT and manifest.origin != RANDOM_WEIGHTS and told is not None:
        reference = play_gate(Pipeline.open(pipeline.bundle, exact(), EXACT), texts)
        found, needed = _similarity(before, reference), float(told) - SSIM_MARGIN
        result |= {"ssim_against_exact": round(found, 4), "ssim_needed": round(needed, 4)}
        result["passed"] = bool(result["passed"] and found >= needed)
    return result


def _similarity(first: Clips, second: Clips) -> float:
    pairs = zip(first, second, strict=True)
    return float(np.mean([ssim(a, b) for one, other in pairs for a, b in zip(one, other, strict=True)]))


def ssim(first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]) -> float:
    """Structural similarity of two frames u8 [H, W, C], mean over pixels and channels; 1 when equal.

    Source: Wang et al. 2004, with an 11-pixel Gaussian window of sigma 1.5.
    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    mean_a, mean_b = _blur(a), _blur(b)
    var_a, var_b = _blur(a * a) - mean_a**2, _blur(b * b) - mean_b**2
    covariance = _blur(a * b) - mean_a * mean_b
    top = (2 * mean_a * mean_b + _C1) * (2 * covariance + _C2)
    return float(np.mean(top / ((mean_a**2 + mean_b**2 + _C1) * (var_a + var_b + _C2))))


def _blur(image: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[H, W, C], blurred along height and width, with mirrored edges."""
    for _ in range(2):
        mirrored = np.pad(image, ((5, 5), (0, 0), (0, 0)), mode="reflect")
        rows = (weight * mirrored[k : k + len(image)] for k, weight in enumerate(_WINDOW))
        image = np.asarray(sum(rows)).swapaxes(0, 1)
    return image


def describe_failure(output: str) -> str:
    """The last line, which names the cause, then what was printed before it, shortened to its end."""
    *before, cause = output.strip().splitlines() or ["it printed nothing"]
    context = "\n".join(before)[-KEPT_CHARACTERS:]
    return f"{cause}\n(printed before that: {context})" if context else cause
