"""Starts a worker on this machine, with its share of the cores and GPUs and a log in the state folder.

Knows the worker's command and the operating system; nothing of what the worker says. The worker's standard input is a
pipe that nobody writes to: it closes when the server is gone, however it ended, and then the worker ends, too.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import ONNXRUNTIME_DEVICES
from animegamer_rt.errors import StoreError
from animegamer_rt.profiling.child_process import child_command, describe_end
from animegamer_rt.serving.wire import WORKER_SECRET

from .descriptors import KeptDescriptors
from .options import ServeOptions
from .worker_shares import EVERYTHING, VISIBLE_GPUS, WorkerShare, running_on

DEATH_S = 1.0
"""How long to wait for a process that was killed. A driver or a network disk that hangs may keep it for ever."""
LOG_TAIL_BYTES = 4096
MAX_LOG_BYTES = 16 * 2**20
"""A longer log is emptied when the next worker starts."""

log = logging.getLogger(__name__)


class RunningWorker(Protocol):
    """A process that runs, or waits for a place to.

    pid: its id on this machine; None on another one. placed: it has a place to run. leaving: its place goes away soon,
    so it should get no more jobs.
    """

    pid: int | None
    placed: bool
    leaving: bool

    def poll(self) -> object:
        """None while it runs. Asked often."""

    def ended(self) -> str:
        """How it ended, in words that follow its name."""

    def let_go(self) -> None:
        """Have it end, as if the server were gone."""

    def kill(self) -> bool:
        """End it now, without a long wait. Returns whether it has ended, as far as can be seen from here."""

    def wait(self, seconds: float) -> bool:
        """Wait for its end for so long; returns whether it came."""


class WorkerHost(Protocol):
    """Where one worker runs: this machine, or a node of a Ray cluster.

    name: how logs and errors call the worker. remote: its connection may break while it runs.
    """

    name: str
    remote: bool

    def open_log(self) -> None:
        """Begin a new log. Raises StoreError when the state folder cannot be written."""

    def start(self, secret: str) -> RunningWorker:
        """Start the worker, which says `secret` with its first messages. Raises OSError if that cannot be done now."""


class LocalHost:
    """This machine, for worker `number`, which connects to `address`.

    descriptors: held for the start of any worker; None: for this one alone.
    """

    remote = False

    def __init__(
        self,
        options: ServeOptions,
        bundle: Bundle,
        address: str,
        number: int = 1,
        share: WorkerShare = EVERYTHING,
        descriptors: KeptDescriptors | None = None,
    ) -> None:
        self.name, self._share = worker_name(options, number), share
        self._descriptors = descriptors or KeptDescriptors()
        engines, trace = options.engines, options.trace
        if share.threads is not None and engines.threads is None and engines.device in ONNXRUNTIME_DEVICES:
            engines = replace(engines, threads=share.threads)
        if trace is not None and number > 1:
            trace = trace.with_stem(f"{trace.stem}-{number}")
        self._command = child_command("animegamer_rt.serving.worker", "--server", address)
        self._command += ["--bundle", str(bundle.folder), *engines.to_args()]
        self._command += ["--plan", options.plan] if options.plan else []
        self._command += ["--trace", str(trace)] if trace else []
        self._log_path = options.state_dir / ("worker.log" if number == 1 else f"worker-{number}.log")

    def open_log(self) -> None:
        """Begin a new worker.log. Raises StoreError when the state folder cannot be written."""
        begin_log(self._log_path)

    def start(self, secret: str) -> LocalWorker:
        """Start the worker. Raises OSError."""
        environment = {**os.environ, WORKER_SECRET: secret}
        if self._share.gpu is not None:
            environment[VISIBLE_GPUS] = self._share.gpu
        with self._descriptors.released(), open_log(self._log_path) as worker_log, running_on(self._share.cores):
            if worker_log.tell() > MAX_LOG_BYTES:
                worker_log.truncate(0)
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


class LocalWorker:
    """A worker's process. log_path: where it writes why it ended."""

    placed, leaving = True, False

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process, self._log_path = process, log_path
        self.pid: int | None = process.pid
        self.poll = process.poll

    def ended(self) -> str:
        """How it ended, in words that follow its name."""
        return describe_end(self._process.returncode, "".join(tail(self._log_path)[-1:]))

    def let_go(self) -> None:
        """Close its standard input: it ends then."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> bool:
        """Kill a process that may be dead already. The server stands still meanwhile, so it does not wait for long."""
        self._process.kill()
        if self.wait(DEATH_S):
            return True
        log.error("process %d was killed and has not ended; it may hold the GPU until it does", self.pid)
        return False

    def wait(self, seconds: float) -> bool:
        """Wait for its end for so long; returns whether it came."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def begin_log(path: Path) -> None:
    """Begin a new log. Raises StoreError when it cannot be written."""
    try:
        with open_log(path) as file:
            file.truncate(0)
    except OSError as error:
        raise StoreError(
            "the worker's log cannot be written",
            where=path,
            found=error.strerror or str(error),
            do="make it writable, or give another folder with --state-dir",
        ) from error


def open_log(path: Path) -> BinaryIO:
    """A log, which only this user may read: it may hold players' words. Raises OSError."""
    # Not blocking: a named pipe would keep the server waiting for its reader.
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0), 0o600)
    return os.fdopen(opened, "ab")


def tail(path: Path) -> list[str]:
    """The last lines of a file that are not empty."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def own_group() -> dict[str, Any]:
    """Ctrl-C on the terminal reaches the server only, which lets running turns finish."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def worker_name(options: ServeOptions, number: int) -> str:
    """How logs and errors call a worker."""
    return "the worker" if options.workers == 1 else f"worker {number}"
