"""Times PyTorch's engines, our kernels and their peers on this GPU, into one JSON record.

Made for a GPU that is available for minutes. Each job (a variant, a peer) is a process with a time limit, in
order of priority. The record is rewritten after each result and includes the last lines of failed jobs. `--minutes N`
ends the run after N minutes; the remaining jobs are listed as `not_run`, and `--continue RECORD` runs them. `--dry-run`
runs every job's code on a CPU at tiny size, in this process; its times mean nothing. Requirements:
benchmarks/README.md.
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
from threading import Event
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("", "runtime", "export", "kernels", "client/python", "benchmarks/bench")
PATHS = [str(ROOT / folder) for folder in FOLDERS]
"""Where a checkout's packages are; none needs to be installed."""
sys.path[:] = [*PATHS, *(path for path in sys.path if path != str(Path(__file__).parent))]

from animegamer_rt.bundle.files import make_folder  # noqa: E402
from animegamer_rt.bundle.loader import open_bundle  # noqa: E402
from animegamer_rt.errors import INTERRUPTED, AnimeGamerError  # noqa: E402
from animegamer_rt.profiling.host import RECORD_FORMAT, commit  # noqa: E402
from benchmarks.gpu import jobs as gpu_jobs  # noqa: E402
from benchmarks.gpu import record as gpu_record  # noqa: E402
from benchmarks.gpu.jobs import LIMITS_S, PLANS, STAGES, Job, Variant  # noqa: E402
from benchmarks.gpu.record import Entry, Record  # noqa: E402

Runner = Callable[[Mapping[str, Any], float, Callable[[Entry], None]], tuple[str, str]]
"""(arguments of a job, time limit in seconds, result callback) -> (outcome, its last output)."""
POLL_S, END_S = 0.2, 15.0
INSTALL = "run: pip install 'torch>=2.9'"
WITHOUT_GPU = "--dry-run runs the same code without a GPU"
REFERENCES = ROOT / "build" / "gpu-reference"
"""Outputs of plain bf16, by size; large and remade by every run, so not stored with the results."""
KEPT_CHARACTERS = 12000
"""Lines kept of a failed job's output."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is not measured yet; 1 if a job failed or differs, 2 if nothing could start, 130 at Ctrl-C."""
    options = parse(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    try:
        make_folder(options.results)
        record = open_record(options)
        if library_of(record) is None:
            record.forget("build")  # A library built on another machine is not available here.
        if not all((ROOT / entry["file"]).is_file() for entry in record.data.get("reference", [])):
            record.forget("reference")
        with ctrl_c() as stop:
            work(record, record.remaining(select_jobs(options)), options, deadline, stop)
        if stop.is_set():
            print(f"stopped; resume with --continue {record.path}", file=sys.stderr)
            return INTERRUPTED
        return summary(record)
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


@contextmanager
def ctrl_c() -> Iterator[Event]:
    """Inside, Ctrl-C sets the event instead of raising: a result that is just being recorded is not lost."""
    stop = Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def select_jobs(options: argparse.Namespace) -> list[Job]:
    """The jobs of the chosen stages, and their dependencies: the kernel library and the outputs of plain bf16."""
    jobs = [*gpu_jobs.jobs(options.device, options.size, options.plans, variant_filter(options.variants))]
    selected = [job for job in jobs if job.stage in options.stages and (job.plans or job.stage != "turns")]
    needed = {"build"} if any(job.kernels for job in selected) else set()
    needed |= {"reference"} if any(job.stage == "turns" and job.args["size"] != "pocket" for job in selected) else set()
    return [job for job in jobs if job in selected or job.stage in needed]


def open_record(options: argparse.Namespace) -> Record:
    """The record, new or continued, after querying the machine. Raises AnimeGamerError."""
    open_bundle(options.bundle)  # fail early for a wrong name
    found: list[Entry] = []
    job = Job("machine", options.device)
    limit = LIMITS_S["machine"] * options.timeout_scale
    outcome, output = runner(options)(vars_of(options, job, None), limit, found.append)
    if not found:
        do = f"see the requirements in benchmarks/README.md; {WITHOUT_GPU}" if options.device == "cuda" else INSTALL
        raise AnimeGamerError(f"querying the machine: {outcome}", found=output.splitlines()[-1], do=do)
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


def work(record: Record, jobs: Sequence[Job], options: argparse.Namespace, deadline: float, stop: Event) -> None:
    """Runs the jobs until the deadline, or until `stop` is set; a failure costs only its own job."""
    for number, job in enumerate(jobs):
        # Recorded now, in case the run is killed.
        record.update(not_run=[f"{left.stage} {left.name}" for left in jobs[number:]])
        if stop.is_set() or deadline <= time.monotonic():
            return
        work_on(record, options, deadline, stop, job)
    record.update(not_run=[])


def work_on(record: Record, options: argparse.Namespace, deadline: float, stop: Event, job: Job) -> None:
    """Runs one job and records how it ended. stop: ends it when set."""
    library = library_of(record)
    if job.kernels and library is None:
        record.end(job, "left out", 0.0, "no kernel library: see build")
        return
    allowed, started = job.limit_s * options.timeout_scale, time.monotonic()
    limit = min(allowed, deadline - started)
    record.start(job)
    outcome, output = runner(options, stop)(vars_of(options, job, library), limit, partial(record.add, job))
    if outcome == "timed out" and (limit < allowed or stop.is_set()):
        outcome = "cut"  # Stopped by --minutes or Ctrl-C, not a failure.
    taken = time.monotonic() - started
    record.end(job, outcome, taken, output)
    print(f"{job.stage:<8} {job.name:<28} {outcome:<10} {taken:6.1f} s", flush=True)


def library_of(record: Record) -> str | None:
    """The path of the kernel library that was built or found, if it still exists."""
    named = (ROOT / entry["library"] for entry in record.data.get("build", []) if entry["library"])
    return next((str(library) for library in named if library.is_file()), None)


def runner(options: argparse.Namespace, stop: Event | None = None) -> Runner:
    """The job runner: a process per job, or in a dry run this process, without time limits."""
    if not options.dry_run:
        return partial(run, stop=stop or Event())
    from benchmarks.gpu import dry_run  # imports torch

    return lambda job_args, limit_s, take: dry_run.run(job_args, take)


def run(job_args: Mapping[str, Any], limit_s: float, take: Callable[[Entry], None], stop: Event) -> tuple[str, str]:
    """Runs a job in a process until `stop`, and passes on its results; (outcome, its last output)."""
    with tempfile.TemporaryDirectory() as folder:
        entries, log = Path(folder) / "entries", Path(folder) / "log"
        entries.touch()
        with entries.open(encoding="utf-8") as results, subprocess_for(command(job_args, entries), log) as process:
            ends, partial_line = time.monotonic() + limit_s, ""
            while True:
                over = process.poll() is not None or time.monotonic() > ends or stop.is_set()
                *whole, partial_line = (partial_line + results.read()).split("\n")
                for line in whole:
                    take(json.loads(line))
                if over:
                    break
                time.sleep(POLL_S)
            code = process.poll()
        output = log.read_text(encoding="utf-8", errors="replace").strip()[-KEPT_CHARACTERS:]
    outcome = {None: "timed out", 0: "well"}.get(code, "failed")
    return outcome, output or f"no output; exit status {code}"


def command(job_args: Mapping[str, Any], entries: Path) -> list[str]:
    """The command line of one job."""
    return [sys.executable, "-m", "benchmarks.gpu.stage", json.dumps(job_args), str(entries)]


@contextmanager
def subprocess_for(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed with its children when the block is left."""
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    group: dict[str, Any] = {"preexec_fn": os.setpgrp} if os.name == "posix" else {}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
            **group,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):  # A process stuck in the driver cannot be killed.
            os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()
            process.wait(END_S)


def vars_of(options: argparse.Namespace, job: Job, library: str | None) -> dict[str, Any]:
    """The arguments of a job's process."""
    about = {"stage": job.stage, "name": job.name, "device": options.device, "bundle": options.bundle}
    run = {"turns": options.turns, "plans": job.plans, "library": library, "results": str(options.results.absolute())}
    reference = {"reference": str(REFERENCES / f"{job.args.get('size')}.npz")}
    return {**run, **about, **reference, **job.args}


def variant_filter(names: Sequence[str]) -> Callable[[Variant], bool]:
    """Selects the variants of these names; all, if there are none."""
    return lambda variant: not names or variant.name in names


def summary(record: Record) -> int:
    """Prints turns and failures, the record's path last; 1 if something failed."""
    turns = gpu_record.turn_records(record.data)
    for turn in turns:
        by = turn["peer"] or turn["variant"]
        stages = ", ".join(f"{name} {seconds['p50']:.3f}" for name, seconds in turn["stages"].items())
        memory = turn["memory_peak_mib"]
        more = f"; {memory:.0f} MiB" if memory else ""
        print(f"{turn['bundle']} {turn['plan']:<8} {by:<22} {turn['seconds_per_turn_p50']:7.3f} s: {stages}{more}")
    others = [turn for turn in turns if not (turn.get("against_plain_bf16") or {"passed": True})["passed"]]
    for turn in others:
        found = turn["against_plain_bf16"]
        print(f"differs from plain bf16: {turn['variant']}, {turn['plan']}: latent error {found['latent_error']}")
    jobs = record.data["jobs"]
    failed = [job for job in jobs if job["ended"] in gpu_record.FAILED]
    for job in failed:
        print(f"{job['ended']}: {job['stage']} {job['job']}: {job['said'].splitlines()[-1]}")
    print(f"{len(failed)} of {len(jobs)} jobs failed")
    print(f"record: {record.path}")
    if left := record.data.get("not_run"):
        print(f"{len(left)} jobs not run: {', '.join(left)}")
    return 1 if others or failed else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [variant.name for variant in (*gpu_jobs.VARIANTS, *gpu_jobs.CPU_VARIANTS)]

    def some(of: Sequence[str]) -> Callable[[str], list[str]]:
        def names_in(text: str) -> list[str]:
            if unknown := [name for name in text.split(",") if name not in of]:
                raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(of)}")
            return text.split(",")

        return names_in

    parser.add_argument("--dry-run", action="store_true", help="run every job's code on a CPU at tiny size")
    parser.add_argument(
        "--stages", metavar="STAGE,..", type=some(STAGES), default=list(STAGES), help=f"of {', '.join(STAGES)}"
    )
    parser.add_argument(
        "--variants", metavar="VARIANT,..", type=some(names), default=[], help=f"of {', '.join(dict.fromkeys(names))}"
    )
    parser.add_argument("--size", type=some(("full", "pocket")), help="full,pocket (default); a dry run has its own")
    parser.add_argument(
        "--plans", metavar="PLAN,..", type=some(PLANS), default=list(PLANS), help=f"of {', '.join(PLANS)}"
    )
    parser.add_argument("--turns", type=int, default=3, help="timed turns of each plan (default: 3; in a dry run 1)")
    parser.add_argument("--minutes", type=float, default=120.0, help="end the run after this time (default: 120)")
    scale = "multiply the time limit of each job (default: 1)"
    parser.add_argument("--timeout-scale", type=float, default=1.0, metavar="X", help=scale)
    parser.add_argument("--continue", type=Path, dest="before", metavar="RECORD", help="continue this record")
    parser.add_argument("--bundle", default="pocket", help="bundle to check and time (default: pocket)")
    parser.add_argument("--commit", help="if git is unavailable (or ANIMEGAMER_COMMIT)")
    parser.add_argument(
        "--results", type=Path, default=Path("bench-results"), help="folder of the record (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    options.device = "cpu" if options.dry_run else "cuda"
    if options.dry_run:
        options.size, options.plans, options.turns = ["tiny"], ["fast", "turbo"], 1
    options.size = options.size or ["full", "pocket"]
    return options


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # child processes are killed too
    sys.exit(main())
