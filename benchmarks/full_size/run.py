"""Exports a full-size bundle of random weights and plays one turn of it on this machine's CPU: time, memory, accuracy.

`python benchmarks/full_size/run.py --folder DIR` runs the commands as a user would (export, doctor, play, serve to the
Python client), then holds what each stage gave to torch in float32 (`accuracy`). Each job's figures go into
DIR/figures.json once it has ended, and a job that is found there is not run again. Every call ends with a record of
what there is. DIR needs 30 GB. `--plan two-steps` adds the shortest plan that has both kinds of steps to the bundle and
plays that: 3 rows of the network for the 19 of `fast`. `--size pocket` tries the same within a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from animegamer_client import Client, Done, Event, Frame, Progress, State
from animegamer_export.build.default_plans import UNGUIDED_BELOW
from animegamer_rt.bundle.coarse_plan import coarse_plan
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.profiling.host import environment, write_record
from benchmarks.full_size.memory import MemoryWatch

RESULTS = Path(__file__).resolve().parents[1] / "results"
DEVICE = "torch-cpu"
TEXT, SEED = "Character: Qiqi; Motion: gently wave; Background: day meadow.", 7
SHORT = "two-steps"
DAY_S = 86_400
INSTRUCTIONS = re.compile(r"avx\S*|amx\S*|fma|f16c|asimd\S*|sve\S*|bf16|i8mm")
"""Names of processor features that matrix products use, in /proc/cpuinfo."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What is played, and where."""

    folder: Path
    size: str
    precision: str
    plan: str

    @property
    def bundle(self) -> Path:
        """The exported bundle."""
        return self.folder / "bundle"

    @property
    def figures(self) -> Path:
        """The figures of the jobs that have ended."""
        return self.folder / "figures.json"

    @property
    def kept(self) -> Path:
        """What `kept` keeps of the played turn."""
        return self.folder / "kept"

    @property
    def engines(self) -> list[str]:
        """Options of `play` and `serve`."""
        return ["--device", DEVICE, "--precision", self.precision] if self.precision != "fp32" else ["--device", DEVICE]

    @property
    def played(self) -> list[str]:
        """The same, with bundle and plan."""
        return ["--bundle", str(self.bundle), "--plan", self.plan, *self.engines]


def main() -> None:
    """Runs the jobs that have no figures yet, and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True, help="for the bundle, the game and the figures")
    parser.add_argument("--jobs", default=",".join(JOBS), help="default: %(default)s")
    parser.add_argument("--size", default="full", help="of the random weights, as of export (default: full)")
    parser.add_argument(
        "--precision", default="bf16", choices=("bf16", "fp16", "fp32"), help="to compute in (default: bf16)"
    )
    parser.add_argument("--plan", default="fast", help="default: fast")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    request = Request(options.folder, options.size, options.precision, options.plan)
    make_folder(request.folder)
    figures: Figures = json.loads(request.figures.read_text()) if request.figures.exists() else {}
    for name in options.jobs.split(","):
        if name not in figures:
            print(f"-- {name}", flush=True)
            figures[name] = JOBS[name](request)
            request.figures.write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures, indent=1))
    print(write_record(options.results, f"{request.size}-turn-cpu", _record(request, figures)))


def _record(request: Request, figures: Mapping[str, Any]) -> Figures:
    bundle, info = open_bundle(str(request.bundle)), Path("/proc/cpuinfo")
    flags = next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    plan = DenoisePlan.from_dict(bundle.plan(request.plan))
    size = bundle.manifest.geometry
    return {
        **environment("torch", "onnxruntime"),
        "kind": "full-size-turn",
        "instruction_sets": sorted(set(INSTRUCTIONS.findall(flags.partition(":")[2]))),
        "memory_source": "resident memory of all processes of a command together, five times a second",
        "of": bundle.manifest.description,
        "precision": {name: part.precision for name, part in bundle.manifest.parts.items()},
        "device": DEVICE,
        "computes_in": request.precision,
        "plan": request.plan,
        "rows_by_step": [len(step.rows) for step in plan.steps],
        "network_rows": plan.network_rows,
        "shape": [size.frames, size.height, size.width],
        **figures,
    }


def export(request: Request) -> Figures:
    """`animegamer-rt export`, all parts that play needs."""
    given = ["--random-weights", "0", "--size", request.size, "--parts", "predictor,denoiser,vae"]
    command = _command("export", *given, "--precision", "predictor=int4-qdq", "--out", str(request.bundle))
    found, _ = _run(request, command)
    bundle = open_bundle(str(request.bundle))
    if request.plan == SHORT:
        short = PlanEntry(coarse_plan(2, conditional_below=UNGUIDED_BELOW).to_dict())
        plans = {**bundle.manifest.plans, SHORT: short}
        bundle = write_manifest(bundle.folder, replace(bundle.manifest, plans=plans), changed=())
    steps = {
        name: {field: step[field] for field in ("seconds", "process_peak_memory_gib")}
        for name, step in bundle.manifest.provenance["export"]["steps"].items()
    }
    return {**found, "bytes": bundle.bytes, "steps": steps}


def doctor(request: Request) -> Figures:
    """What `animegamer-rt doctor` says beforehand of the memory of a turn."""
    done = subprocess.run(
        _command("doctor", "--bundle", str(request.bundle), "--json"), capture_output=True, text=True, check=False
    )
    findings = json.loads(done.stdout)["findings"]
    return {"host_memory": next(finding for finding in findings if finding["what"] == "host memory")}


def play(request: Request) -> Figures:
    """`animegamer-rt play`, from the start of its process to the mp4."""
    story, game = request.folder / "story.txt", request.folder / "game"
    story.write_text(TEXT + "\n", encoding="utf-8")
    given = ["--instructions", str(story), "--seed", str(SEED), "--out", str(game)]
    marks: dict[str, float] = {}

    def see(line: str) -> None:
        for name, word in (("begin", "turn 1 >"), ("predictor", "motion level"), ("clip", ".mp4")):
            if word in line:
                marks.setdefault(name, time.monotonic())

    keep = [sys.executable, str(Path(__file__).with_name("kept.py")), str(request.kept)]
    found, memory = _run(request, [*keep, "play", *request.played, *given], see)
    turn = json.loads((game / "game.json").read_text(encoding="utf-8"))["turns"][0]
    seconds, predicted = turn["seconds"], marks["predictor"]
    ends = {"predictor": predicted, "denoiser": predicted + seconds["denoiser"], "vae": marks["clip"]}
    return {
        **found,
        "stages": _stages(marks["begin"], ends, seconds, memory),
        "seconds_per_turn": seconds["total"],
        "state": turn["state"],
        "frames_sha256": turn["frames_sha256"],
        "mp4_bytes": (game / "turn-001.mp4").stat().st_size,
    }


def serve(request: Request) -> Figures:
    """`animegamer-rt serve`, one turn of the Python client, all frames as they arrive."""
    # A stage takes longer than a busy worker may otherwise be silent, and a turn longer than it may otherwise take.
    patience = ["--worker-timeout-s", str(DAY_S), "--turn-deadline", str(DAY_S)]
    where = ["--state-dir", str(request.folder / "state"), "--port", "0", "--metrics-port", "0"]
    command = _command("serve", *request.played, *patience, *where)
    with (request.folder / "serve.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    with MemoryWatch(process.pid) as memory:
        try:
            assert process.stdout is not None
            address = next(line.split()[1] for line in process.stdout if line.startswith("ready "))
            began, events = time.monotonic(), list[tuple[float, Event]]()
            with Client(address, timeout_s=60) as client:
                for event in client.open(seed=SEED).turn(TEXT):
                    events.append((time.monotonic(), event))
                    print(f"{events[-1][0] - began:8.1f} s  {type(event).__name__}", flush=True)
        finally:
            process.terminate()
            process.wait(120)
    pictures = [event.pixels for _, event in events if isinstance(event, Frame)]
    frames = np.stack(pictures)
    np.save(request.folder / "frames.npy", frames)
    (done,) = (event for _, event in events if isinstance(event, Done))
    ends = {
        "predictor": next(at for at, event in events if isinstance(event, State)),
        "denoiser": max(at for at, event in events if isinstance(event, Progress)),
        "vae": max(at for at, event in events if isinstance(event, Frame)),
    }
    spent = {name: getattr(done.seconds, name) for name in ends}
    return {
        "stages": _stages(began, ends, spent, memory),
        "seconds_per_turn": done.seconds.total,
        "peak_gib": memory.peak_gib(),
        "frames_received": len(pictures),
        "frames_sha256": hashlib.sha256(frames.tobytes()).hexdigest(),
        "colours": {"mean": frames.mean((0, 1, 2)).round(1).tolist(), "deviation": round(float(frames.std()), 1)},
    }


def accuracy(request: Request, part: str) -> Figures:
    """What a stage of the played turn gave, beside torch in float32, in this process."""
    from benchmarks.full_size import accuracy as held

    bundle, precision, kept = open_bundle(str(request.bundle)), request.precision, request.kept
    started, played = time.monotonic(), json.loads(request.figures.read_text())["play"]
    with MemoryWatch(os.getpid()) as memory:
        if part == "predictor":
            found = held.predictor(bundle, precision, TEXT, played["state"], kept)
        elif part == "denoiser":
            found = held.denoiser(bundle, precision, request.plan, SEED, kept)
        elif part == "denoiser_begin":
            found = held.denoiser_begin(bundle, precision, request.plan, kept)
        elif part == "vae":
            found = held.vae(bundle, precision, kept)
        else:
            found = {"same_frames": held.frames_again(bundle, precision, kept) == played["frames_sha256"]}
    return {**found, "seconds": round(time.monotonic() - started, 1), "peak_gib": memory.peak_gib()}


JOBS: Mapping[str, Callable[[Request], Figures]] = {
    "export": export,
    "doctor": doctor,
    "play": play,
    "serve": serve,
    **{f"{part}_accuracy": partial(accuracy, part=part) for part in ("predictor", "denoiser_begin", "denoiser", "vae")},
    "vae_again": partial(accuracy, part="again"),
}
"""Job -> its function. vae_again: another process decodes the latent that was played; the bytes should be the same."""


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "animegamer_rt", *arguments]


def _run(
    request: Request, command: list[str], see: Callable[[str], None] = lambda _: None
) -> tuple[Figures, MemoryWatch]:
    """Runs a command to its end: seconds and peak memory. see: is given each line that it prints."""
    started = time.monotonic()
    told = " ".join(["animegamer-rt", *command[3:]]).replace(str(request.folder), "DIR")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    with MemoryWatch(process.pid) as memory:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            see(line)
        if process.wait():
            raise SystemExit(f"error: {told} ended with {process.returncode}")
    seconds = round(time.monotonic() - started, 1)
    return {"command": told, "seconds": seconds, "peak_gib": memory.peak_gib()}, memory


def _stages(began: float, ends: Mapping[str, float], seconds: Mapping[str, float], memory: MemoryWatch) -> Figures:
    """Seconds and peak memory of each stage. ends: when it ended, in order."""
    found, since = {}, began
    for name, end in ends.items():
        found[name] = {"seconds": round(seconds[name], 1), "peak_gib": memory.peak_gib(since, end)}
        since = end
    return found


if __name__ == "__main__":
    main()
