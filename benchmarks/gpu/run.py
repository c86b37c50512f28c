"""Checks PyTorch's parts and our kernels on this GPU, times both, turns and their peers; one JSON record.

Built for a machine that is at hand for minutes. Every check, variant and peer is a process with a time limit, the most
valuable first; the record is written anew after each answer, a failure stands in it with its last lines, and
`--continue RECORD` goes on where a run ended. Every timed turn and peer is also written as a record of turns, as
`animegamer-rt bench` writes them. What it needs, nvidia-ml-py for energy among it: benchmarks/README.md. `--device cpu`
runs the same code at tiny size without a GPU, and its times say nothing. **No record of a GPU has been made with it
yet.**
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), *(str(ROOT / folder) for folder in ("runtime", "export", "kernels"))]
sys.path[:0] = PATHS

from animegamer_rt.bench.records import read_json  # noqa: E402
from animegamer_rt.bundle.files import make_folder  # noqa: E402
from animegamer_rt.bundle.loader import open_bundle  # noqa: E402
from animegamer_rt.errors import INTERRUPTED, AnimeGamerError  # noqa: E402
from animegamer_rt.profiling.host import RECORD_FORMAT, commit  # noqa: E402
from benchmarks.gpu import goals as gpu_goals  # noqa: E402
from benchmarks.gpu import jobs as gpu_jobs  # noqa: E402
from benchmarks.gpu import record as gpu_record  # noqa: E402
from benchmarks.gpu.jobs import LIMITS_S, PLANS, STAGES, Job, Variant  # noqa: E402
from benchmarks.gpu.record import Entry, Record  # noqa: E402

POLL_S, END_S = 0.2, 15.0
INSTALL = "run: pip install 'torch>=2.9'"
WITHOUT_GPU = "--device cpu runs the same code without a GPU"
SAID_CHARACTERS = 12000
"""Of what a process said last, if it did not end well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is still to be measured; 1 if a check or job failed, 2 if nothing could be begun, 130 at Ctrl-C."""
    options = parse(arguments)
    deadline = time.monotonic() + options.seconds
    try:
        make_folder(options.results)
        if options.unpack is not None:
            print(f"{gpu_record.write_turns(options.results, read_json(options.unpack))} records of turns")
            return 0
        record = opened(options)
        if library_of(record) is None:
            record.forget("build")  # what a run on another machine built is not here
        try:
            work(record, record.left(wanted(options)), options, deadline)
        except KeyboardInterrupt:
            print(f"stopped; the rest: --continue {record.path}", file=sys.stderr)
            return INTERRUPTED
        return summary(record, options)
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def wanted(options: argparse.Namespace) -> list[Job]:
    """The jobs of the stages asked for, and the kernels' library for those that cannot be done without it."""
    jobs = [*gpu_jobs.jobs(options.device, options.size, options.plans, chosen_by(options.variants))]
    asked = [job for job in jobs if job.stage in options.stages and (job.plans or job.stage != "turns")]
    built = [job for job in jobs if job.stage == "build" and job not in asked]
    return [*built, *asked] if any(job.kernels for job in asked) else asked


def opened(options: argparse.Namespace) -> Record:
    """The record, new or continued, once the machine has said what it is. Raises AnimeGamerError."""
    open_bundle(options.bundle)  # a slip in its name is said before the work
    found: list[Entry] = []
    job = Job("machine", options.device)
    how, said = run(vars_of(options, job, None), LIMITS_S["machine"] * options.patience, found.append)
    if not found:
        do = f"see what is needed in benchmarks/README.md; {WITHOUT_GPU}" if options.device == "cuda" else INSTALL
        raise AnimeGamerError(f"asking the machine {how}", found=said.splitlines()[-1], do=do)
    heading = {
        "format": RECORD_FORMAT,
        "kind": "gpu",
        "device": options.device,
        "bundle": options.bundle,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": options.commit or commit(),
        "note": "full and tiny have random weights: time and memory only",
        **found[0],
    }
    return gpu_record.open_record(options.results, heading, options.before)


def work(record: Record, jobs: Sequence[Job], options: argparse.Namespace, deadline: float) -> None:
    """Does the jobs one after the other until the time is up; what goes wrong in one is only its own."""
    for number, job in enumerate(jobs):
        left = deadline - time.monotonic()
        if left <= 0:
            print(f"the time is up: {len(jobs) - number} jobs are left (--continue)")
            return
        library = library_of(record)
        if job.kernels and library is None:
            record.end(job, "left out", 0.0, "no library of the kernels: see build")
            continue
        allowed = LIMITS_S[job.stage] * options.patience
        started, limit = time.monotonic(), min(allowed, left)
        record.start(job)
        how, said = run(vars_of(options, job, library), limit, partial(record.add, job))
        if how == "timed out" and limit < allowed:
            how = "cut"  # by our own time, which says nothing of the job
        record.end(job, how, time.monotonic() - started, said)
        publish(record, options.results)
        print(f"{job.stage:<8} {job.name:<28} {how:<10} {time.monotonic() - started:6.1f} s", flush=True)


def library_of(record: Record) -> str | None:
    """The kernels' library that was built or found, where it still is."""
    named = (entry["library"] for entry in record.data.get("build", []) if entry["library"])
    return next((library for library in named if Path(library).is_file()), None)


def run(asked: Mapping[str, Any], limit_s: float, take: Callable[[Entry], None]) -> tuple[str, str]:
    """Does a job in a process, its entries taken as they come. How it ended, and its last words."""
    with tempfile.TemporaryDirectory() as folder:
        entries, log = Path(folder) / "entries", Path(folder) / "log"
        entries.touch()
        with entries.open(encoding="utf-8") as answers, started(command(asked, entries), log) as process:
            ends, half = time.monotonic() + limit_s, ""
            while True:
                over = process.poll() is not None or time.monotonic() > ends
                *whole, half = (half + answers.read()).split("\n")
                for line in whole:
                    take(json.loads(line))
                if over:
                    break
                time.sleep(POLL_S)
            code = process.poll()
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-SAID_CHARACTERS:]
    how = {None: "timed out", 0: "well"}.get(code, "failed")
    return how, said or f"no words; exit status {code}"


def command(asked: Mapping[str, Any], entries: Path) -> list[str]:
    """What does one job."""
    return [sys.executable, "-m", "benchmarks.gpu.stage", json.dumps(asked), str(entries)]


@contextmanager
def started(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone, with all that it started, when the block is left."""
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    group: dict[str, Any] = {"preexec_fn": os.setpgrp} if os.name == "posix" else {}
    with log.open("wb") as said:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
            **group,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):  # one stuck in the driver cannot be waited for
            os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
            process.wait(END_S)


def vars_of(options: argparse.Namespace, job: Job, library: str | None) -> dict[str, Any]:
    """All that a job is told."""
    about = {"stage": job.stage, "name": job.name, "device": options.device, "bundle": options.bundle}
    run = {"turns": options.turns, "plans": job.plans, "library": library, "results": str(options.results.absolute())}
    return {**run, **about, **job.asks}


def publish(record: Record, results: Path) -> None:
    """Turns as records of their own, and the goals."""
    gpu_record.write_turns(results, record.data)
    turns = gpu_record.turn_records(record.data)
    record.note(goals=gpu_goals.goals(turns), goals_by_one_variant=gpu_goals.together(turns))


def chosen_by(names: Sequence[str]) -> Callable[[Variant], bool]:
    """Whether a variant is among those named; all are if none is."""
    return lambda variant: not names or variant.name in names


def summary(record: Record, options: argparse.Namespace) -> int:
    """Prints turns, goals and what failed, the path last; 1 if something failed."""
    turns = gpu_record.turn_records(record.data)
    for turn in turns:
        by = turn["peer"] or turn["variant"]
        stages = ", ".join(f"{name} {seconds['p50']:.3f}" for name, seconds in turn["stages"].items())
        floor, memory = turn["denoiser_floor_seconds"], turn["memory_peak_mib"]
        more = (f"; floor {floor:.3f}" if floor else "") + (f"; {memory:.0f} MiB" if memory else "")
        print(f"{turn['size']} {turn['plan']:<8} {by:<22} {turn['seconds_per_turn_p50']:7.3f} s: {stages}{more}")
    for line in gpu_goals.lines(gpu_goals.goals(turns), gpu_goals.together(turns)):
        print(line)
    for one in record.data.get("queue", []):
        times = f"{one['seconds_apart_p50']:.3f} s apart, {one['seconds_overlapping_p50']:.3f} s overlapping"
        print(f"{one['turns']} turns of {one['plan']} by {one['variant']} in a queue: {times}; {one['trace']}")
    for one in record.data.get("tests", []):
        counts = (
            f"{one['passed']} passed, {one['failed']} failed, {one['skipped']} skipped" if one["ran"] else one["why"]
        )
        print(f"tests of {one['job']}: {counts}")
    checks = record.data.get("checks", [])
    wrong = [entry for entry in checks if not entry["passed"]]
    for entry in wrong:
        why = str(entry.get("broken", entry["error"])).strip().splitlines()[-1]
        print(f"check failed: {entry['job']}: {entry['check']}: {why}")
    ended = record.data["jobs"]
    failed = [entry for entry in ended if entry["ended"] in gpu_record.FAILED]
    for entry in failed:
        print(f"{entry['ended']}: {entry['stage']} {entry['job']}: {entry['said'].splitlines()[-1]}")
    print(f"{len(checks) - len(wrong)} of {len(checks)} checks passed, {len(failed)} of {len(ended)} jobs failed")
    print(f"record: {record.path}")
    return 1 if wrong or failed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [variant.name for variant in (*gpu_jobs.VARIANTS, *gpu_jobs.CPU_VARIANTS)]

    def some(of: Sequence[str]) -> Callable[[str], list[str]]:
        def words(text: str) -> list[str]:
            if unknown := [word for word in text.split(",") if word not in of]:
                raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(of)}")
            return text.split(",")

        return words

    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--stages", type=some(STAGES), default=list(STAGES), help=f"of {','.join(STAGES)}")
    parser.add_argument("--variants", type=some(names), default=[], help=f"of {','.join(dict.fromkeys(names))}")
    parser.add_argument("--size", type=some(("full", "pocket", "tiny")), help="full,pocket; tiny on a CPU")
    parser.add_argument("--plans", type=some(PLANS), default=list(PLANS), help=f"of {','.join(PLANS)}")
    parser.add_argument("--turns", type=int, default=3, help="measured turns of each plan (default: 3)")
    parser.add_argument("--seconds", type=float, default=7200.0, help="end everything after these (default: 7200)")
    parser.add_argument("--patience", type=float, default=1.0, help="times the usual limits of a job (default: 1)")
    parser.add_argument("--continue", type=Path, dest="before", metavar="RECORD", help="measure what it lacks into it")
    parser.add_argument("--bundle", default="pocket", help="what is checked, and whose plans are run")
    parser.add_argument("--commit", help="where git cannot say it (or ANIMEGAMER_COMMIT)")
    parser.add_argument("--results", type=Path, help="default: benchmarks/results; on a CPU, build/benchmarks")
    parser.add_argument("--unpack", type=Path, metavar="RECORD", help="only write its turns as records of their own")
    options = parser.parse_args(arguments)
    on_gpu = options.device == "cuda"
    options.size = options.size or (["full", "pocket"] if on_gpu else ["tiny", "pocket"])
    options.results = options.results or ROOT / ("benchmarks/results" if on_gpu else "build/benchmarks")
    if not on_gpu and "full" in options.size:
        parser.error("full size on a CPU takes hours a turn")
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what runs is ended too
    sys.exit(main())
