"""Starts a worker on this machine, with its share of the cores and GPUs and a log in the state folder.

The worker's standard input is a pipe that nobody writes to. It closes when the server dies, which ends the worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import GPU_DEVICES, ONNXRUNTIME_DEVICES
from animegamer_rt.errors import StoreError
from animegamer_rt.profiling.child_process import child_command, describe_end
from animegamer_rt.serving.wire.codec import WORKER_SECRET

from .options import ServeOptions

DEATH_S = 1.0
"""How long to wait for a killed process. A hanging driver or network disk may keep it for ever."""
LOG_TAIL_BYTES = 4096
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
MAX_LOG_BYTES = 16 * 2**20
"""A longer log is emptied with the next sweep of the state folder."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """cores: numbers of the cores the worker runs on; empty: all. threads: its share where cores cannot be assigned.

    gpu: its CUDA_VISIBLE_DEVICES; None: the server's.
    """

    cores: tuple[int, ...] = ()
    threads: int | None = None
    gpu: str | None = None


EVERYTHING = WorkerShare()


class RunningWorker(Protocol):
    """A process that is running or waiting to be placed.

    pid: its id on this machine; None on another. placed: whether it has a place to run.
    """

    pid: int | None = None
    placed: bool = True

    def poll(self) -> object:
        """None while it runs. Called often."""

    def ended(self) -> str:
        """How it ended, as words that follow its name. Clients may read them."""

    def last_words(self) -> str:
        """What it said last, such as a Python exception: for the log alone."""
        return ""

    def release(self) -> None:
        """Make it end as if the server had died."""

    def kill(self) -> bool:
        """End it now, without a long wait. Returns whether it has ended, as far as can be seen from here."""
        return True

    def wait(self, seconds: float) -> bool:
        """Wait this long for its end; returns whether it ended, as far as can be seen from here."""
        return True


class WorkerHost(Protocol):
    """Where one worker runs: this machine, or a node of a Ray cluster.

    name: the worker's name in logs and errors. remote: its connection may break while it runs.
    """

    name: str
    remote: bool

    def open_log(self) -> None:
        """Start a new log. Raises StoreError if the state folder cannot be written."""
        return

    def start(self, secret: str) -> RunningWorker:
        """Start the worker, which sends `secret` with its first messages. Raises OSError if that fails for now."""


class LocalHost(WorkerHost):
    """This machine, for worker `number`, which connects to `address`."""

    remote = False

    def __init__(
        self,
        options: ServeOptions,
        bundle: Bundle,
        address: str,
        number: int = 1,
        share: WorkerShare = EVERYTHING,
    ) -> None:
        self.name, self._share = worker_name(options, number), share
        engines = options.engines
        if share.threads is not None and engines.threads is None and engines.device in ONNXRUNTIME_DEVICES:
            engines = replace(engines, threads=share.threads)
        self._command = child_command("animegamer_rt.serving.worker", "--server", address)
        self._command += ["--bundle", str(bundle.folder), *engines.to_args()]
        self._command += ["--plan", options.plan] if options.plan else []
        self._log_path = options.state_dir / ("worker.log" if number == 1 else f"worker-{number}.log")

    def open_log(self) -> None:
        """Start a new worker.log. Raises StoreError if the state folder cannot be written."""
        begin_log(self._log_path)

    def start(self, secret: str) -> LocalWorker:
        """Start the worker. Raises OSError."""
        environment = {**os.environ, WORKER_SECRET: secret}
        if self._share.gpu is not None:
            environment[VISIBLE_GPUS] = self._share.gpu
        with open_log(self._log_path) as worker_log, running_on(self._share.cores):
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=worker_log,
                stderr=worker_log,
                env=environment,
                **own_group(),
            )
        log.info("%s started, process %d", self.name.removeprefix("the "), process.pid)
        return LocalWorker(process, self._log_path)


class LocalWorker(RunningWorker):
    """A worker's process. log_path: its log, which says why it ended."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process, self._log_path = process, log_path
        self.pid = process.pid

    def poll(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ended(self) -> str:
        """How it ended, as words that follow its name."""
        return describe_end(self._process.returncode)

    def last_words(self) -> str:
        """The last line of its log."""
        return "".join(tail(self._log_path)[-1:])

    def release(self) -> None:
        """Close its standard input, which ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> bool:
        """Kill a process that may be dead already. The server blocks meanwhile, so it does not wait for long."""
        self._process.kill()
        if self.wait(DEATH_S):
            return True
        log.error("process %d was killed but has not ended; it may hold the GPU until it does", self.pid)
        return False

    def wait(self, seconds: float) -> bool:
        """Wait this long for its end; returns whether it ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def begin_log(path: Path) -> None:
    """Start a new log. Raises StoreError if it cannot be written."""
    try:
        with open_log(path) as file:
            file.truncate(0)
    except OSError as error:
        raise StoreError(
            "the worker's log cannot be written",
            where=path,
            found="a link" if path.is_symlink() else error.strerror or str(error),
            do="remove it or make it writable, or choose another folder with --state-dir",
        ) from error


def open_log(path: Path) -> BinaryIO:
    """Open a log, emptied if it is long, readable only by this user: it may contain players' words.

    Raises OSError, also for a link.
    """
    # A link's target would be emptied, and a named pipe would keep the server waiting for a reader.
    safely = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | safely, 0o600)
    file = os.fdopen(opened, "ab")
    if file.tell() > MAX_LOG_BYTES:
        file.truncate(0)
    return file


def tail(path: Path) -> list[str]:
    """The last non-empty lines of a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def own_group() -> dict[str, Any]:
    """Ctrl-C in the terminal must reach only the server, which lets running turns finish."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def worker_name(options: ServeOptions, number: int) -> str:
    """A worker's name in logs and errors."""
    return "the worker" if options.workers == 1 else f"worker {number}"


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores this process may use; empty where cores cannot be assigned (macOS, Windows)."""
    if sys.platform == "linux":
        return tuple(sorted(os.sched_getaffinity(0)))
    return ()


def usable_gpus(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs in CUDA_VISIBLE_DEVICES, else all of this machine's (Linux), as that variable spells them."""
    named = environment.get(VISIBLE_GPUS)
    if named is not None:
        return tuple(one.strip() for one in named.split(",") if one.strip())
    found = [path for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return tuple(str(number) for number in range(len(found)))


def share_out(workers: int, device: str, cores: tuple[int, ...], gpus: tuple[str, ...]) -> list[WorkerShare]:
    """A share for each worker: adjacent cores, GPUs in order; shared where there are too few."""
    if workers == 1:
        return [EVERYTHING]
    if device == "torch-cpu" and len(cores) >= workers:  # equal shares: the sums depend on the number of threads
        cores = cores[: len(cores) - len(cores) % workers]
    count = len(cores)
    if count >= workers:
        ranges = [cores[count * one // workers : count * (one + 1) // workers] for one in range(workers)]
    else:
        ranges = [cores[one % count : one % count + 1] if count else () for one in range(workers)]
    threads = None if cores else max(1, (os.cpu_count() or 1) // workers)
    on_gpu = gpus if device in GPU_DEVICES else ()
    return [
        WorkerShare(own, threads, on_gpu[number % len(on_gpu)] if on_gpu else None) for number, own in enumerate(ranges)
    ]


def shortages(workers: int, device: str, cores: int, gpus: int) -> Iterator[str]:
    """What workers have to share, as sentences for the log."""
    if workers == 1:
        return
    if workers > cores:
        yield f"--workers {workers} on {cores} cores: workers share cores; more than {cores} workers gain nothing"
    if device in GPU_DEVICES and gpus == 0:
        yield f"no GPUs were found to assign: all {workers} workers use the same one; set {VISIBLE_GPUS} to assign them"
    elif device in GPU_DEVICES and workers > gpus:
        yield f"--workers {workers} on {gpus} GPUs: workers share GPUs, and each needs memory for its own weights"


@contextlib.contextmanager
def running_on(cores: tuple[int, ...]) -> Iterator[None]:
    """Pins this thread, and processes started inside, to these cores; restores the previous cores on exit."""
    if sys.platform != "linux" or not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:  # a core was taken away from the server
        log.warning("a worker cannot be pinned to cores %s: %s; it uses any", cores, error.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)
