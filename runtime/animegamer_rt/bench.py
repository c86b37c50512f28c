"""`animegamer-rt bench`: how long a turn takes on this machine, stage by stage, and how much memory playing needs.

Measures whole turns of a game in progress (history window full), without encoding clips. One JSON record a run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from .backends.onnxruntime import open_engines
from .bundle import Bundle, open_bundle
from .chart import read_records, write_chart
from .clip import make_folder
from .errors import BackendError
from .events import StageSeconds
from .machine import heading, machine, percentile, write_record
from .pipeline import Rooms, open_rooms, run_turn
from .script import example_script
from .session import Session
from .state import Instruction
from .trace import TimedTurn, watch, write_trace

STAGES = ("predictor", "denoiser", "vae")
SEED = 7
READY = "import sys; from animegamer_rt.play import get_ready; get_ready(*sys.argv[1:])"
"""What a fresh process runs to be measured from its start to the first prompt."""
MATMUL_SIDE = 1024


def bench(bundle_name: str, plan: str | None, turns: int, results: Path, trace: Path | None = None) -> int:
    """Measure, print, and write a record and the plot of all records under `results`, and the median turn's `trace`.

    Raises AnimeGamerError.
    """
    make_folder(results)
    if trace is not None:
        make_folder(trace.parent)
    bundle = open_bundle(bundle_name)
    rooms = open_rooms(bundle, open_engines(bundle), plan=plan)
    geometry = bundle.manifest.geometry
    playback = geometry.frames / geometry.fps
    floor = denoiser_floor(rooms)
    print(f"{bundle.manifest.name}, plan {rooms.plan_name}, {machine()}")
    print(f"a clip plays {playback:.2f} s" + (f"; the denoiser's floor here is {floor:.2f} s" if floor else ""))
    measured = measure_turns(rooms, turns)
    record = {
        **heading("onnxruntime"),
        "size": bundle.manifest.name,
        "origin": bundle.manifest.origin,
        "shape": [geometry.frames, geometry.height, geometry.width],
        "plan": rooms.plan_name,
        "steps": len(rooms.plan.steps),
        "branches": branches(rooms),
        "peer": None,
        "precision": {name: part.precision for name, part in bundle.manifest.parts.items()},
        "n": turns,
        "playback_seconds": playback,
        "denoiser_floor_seconds": floor,
        **summary([turn.done.seconds for turn in measured]),
        **waits(measured, playback),
        **_fresh_process(bundle, rooms.plan_name),
        "fidelity": dict(bundle.manifest.plans[rooms.plan_name].fidelity),
    }
    path = write_record(results, f"{record['size']}-{record['plan']}", record)
    _print_summary(record)
    print(f"record: {path}")
    print(f"plot:   {write_chart(results / 'turn.svg', read_records(results))}")
    if trace is not None:
        median = sorted(measured, key=lambda turn: turn.done.seconds.total)[len(measured) // 2]
        title = f"One turn: {bundle.manifest.name}, {rooms.plan_name}, {machine()}"
        print("trace:  {}, {}".format(*write_trace(trace, median, rooms.plan, title)))
    print(json.dumps(record))
    return 0


def measure_turns(rooms: Rooms, turns: int) -> list[TimedTurn]:
    """`turns` turns of a game of the bundle's example instructions, after its history window is full."""
    session = Session.start(rooms.bundle, seed=SEED)
    warm_up = session.history_turns + 1
    texts = islice(cycle(example_script(rooms.bundle.manifest.world)), warm_up + turns)
    played = [watch(run_turn(rooms, session, Instruction.parse(text))) for text in texts]
    return played[warm_up:]


def waits(measured: Sequence[TimedTurn], playback: float) -> dict[str, Any]:
    """What a player waits for: seconds to the state and to the first frame; a clip's playback time over a turn's."""
    turn = percentile([one.done.seconds.total for one in measured], 50)
    return {
        "seconds_to_state_p50": percentile([one.to_state for one in measured], 50),
        "seconds_to_first_frame_p50": percentile([one.to_first_frame for one in measured], 50),
        "real_time_factor": round(playback / turn, 3) if turn else None,
    }


def summary(measured: list[StageSeconds]) -> dict[str, Any]:
    """p50 and p95 of whole turns and of each stage, in seconds."""
    totals = [turn.total for turn in measured]
    return {
        "seconds_per_turn_p50": percentile(totals, 50),
        "seconds_per_turn_p95": percentile(totals, 95),
        "stages": {
            stage: {f"p{p}": percentile([getattr(turn, stage) for turn in measured], p) for p in (50, 95)}
            for stage in STAGES
        },
    }


def denoiser_floor(rooms: Rooms) -> float | None:
    """Seconds the plan's branches take at this machine's measured fp32 matrix rate; None if the sizes are not known.

    A branch has 24 n D^2 + 4 n^2 D operations a layer (n tokens of width D).
    """
    size, geometry = rooms.bundle.manifest.sizes.get("denoiser"), rooms.bundle.manifest.geometry
    if not isinstance(size, Mapping) or not {"hidden", "layers"} <= set(size):
        return None
    patch = int(size.get("patch", 2))
    tokens = geometry.shot_tokens
    tokens += geometry.latent_frames * (geometry.latent_height // patch) * (geometry.latent_width // patch)
    width, layers = int(size["hidden"]), int(size["layers"])
    operations = layers * (24.0 * tokens * width**2 + 4.0 * tokens**2 * width)
    return round(branches(rooms) * operations / _matmul_rate(), 4)


def branches(rooms: Rooms) -> int:
    """How many times a turn runs the denoiser's network: twice for a guided pair, else once a step."""
    return sum(len(step.rows) for step in rooms.plan.steps)


def _fresh_process(bundle: Bundle, plan: str) -> dict[str, float | None]:
    """Start to first prompt, and the peak memory of a process that plays two turns and writes their clips."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        _run([sys.executable, "-c", READY, str(bundle.folder), plan, str(Path(folder) / "ready")])
        ready = time.perf_counter() - start
        script = Path(folder) / "two-turns.txt"
        script.write_text("\n".join(example_script(bundle.manifest.world)[:2]), encoding="utf-8")
        options = ["--bundle", str(bundle.folder), "--plan", plan, "--instructions", str(script)]
        command = [sys.executable, "-m", "animegamer_rt", "play", *options, "--out", str(Path(folder) / "game")]
        _run(command)
    return {"first_prompt_seconds": round(ready, 3), "memory_peak_mib": _children_peak_mib()}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BackendError("a fresh process cannot play this bundle", found=done.stderr.strip()[-500:])


def _children_peak_mib() -> float | None:
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit / 2**20, 1)


def _matmul_rate() -> float:
    left = np.ones((MATMUL_SIDE, MATMUL_SIDE), np.float32)
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        left @ left
        seconds.append(time.perf_counter() - start)
    return 2.0 * MATMUL_SIDE**3 / min(seconds)


def _print_summary(record: Mapping[str, Any]) -> None:
    print(f"{'stage':<12}{'p50':>9}{'p95':>9}   seconds, n = {record['n']}")
    for stage, seconds in record["stages"].items():
        print(f"{stage:<12}{seconds['p50']:>9.3f}{seconds['p95']:>9.3f}")
    print(f"{'turn':<12}{record['seconds_per_turn_p50']:>9.3f}{record['seconds_per_turn_p95']:>9.3f}")
    state, frame = record["seconds_to_state_p50"], record["seconds_to_first_frame_p50"]
    print(f"state after {state:.2f} s, first frame after {frame:.2f} s, {record['real_time_factor']} x real time")
    memory = record["memory_peak_mib"]
    print(f"start to first prompt {record['first_prompt_seconds']:.2f} s, peak memory {memory} MiB")
