"""Starts the worker process, receives its messages, and starts it again when it died or went silent.

Knows one process and its socket; nothing of turns or of other workers. It waits longer before each start that follows
a failed one. The worker's standard input is a pipe that nobody writes to: it closes when the server is gone, however it
ended, and then the worker ends, too.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import zmq

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import THREADED_DEVICES
from animegamer_rt.errors import ProtocolError, StoreError
from animegamer_rt.profiling.child_process import child_command
from animegamer_rt.serving.wire import WORKER_LIMITS, WORKER_SECRET, Buffer, Message, decode, encode
from animegamer_rt.serving.wire.worker_messages import LOADING, READY, STOP, WorkerReady

from .descriptors import KeptDescriptors
from .options import ServeOptions
from .worker_shares import EVERYTHING, VISIBLE_GPUS, WorkerShare, running_on

MAX_FAILURES = 3
"""Deaths in a row after which a job fails, and after which a worker is `degraded` until it is ready."""
MAX_BACKOFF_S = 30.0
_MAX_DOUBLINGS = 30
"""2 to the power of the failures would be too large for a float after 1024 of them."""
KILLED = 9
"""SIGKILL; Windows has no such name."""
STEADY_S = 60.0
"""A worker that was ready for this long does not count as a failed start when it dies."""
LOADING_S = 600.0
"""A worker that is silent for this long while it loads its engines is replaced."""
STOP_S = 5.0
DEATH_S = 1.0
"""How long to wait for a process that was killed. A driver or a network disk that hangs may keep it for ever."""
LOG_TAIL_BYTES = 4096
MAX_LOG_BYTES = 16 * 2**20
"""A longer log is emptied when the next worker starts."""

log = logging.getLogger(__name__)


class WorkerProcess:
    """`state`: starting, ready, busy, restarting, failed (it goes on trying) or stopped. number: from 1.

    descriptors: held for the start of any worker; None: for this one alone.
    """

    def __init__(
        self,
        options: ServeOptions,
        bundle: Bundle,
        socket: zmq.Socket[bytes],
        address: str,
        number: int = 1,
        share: WorkerShare = EVERYTHING,
        descriptors: KeptDescriptors | None = None,
    ) -> None:
        self._options, self._socket, self.number, self._share = options, socket, number, share
        self._name = "the worker" if options.workers == 1 else f"worker {number}"
        self._fingerprint, self._descriptors = bundle.fingerprint, descriptors or KeptDescriptors()
        engines, trace = options.engines, options.trace
        if share.threads is not None and engines.threads is None and engines.device in THREADED_DEVICES:
            engines = replace(engines, threads=share.threads)
        if trace is not None and number > 1:
            trace = trace.with_stem(f"{trace.stem}-{number}")
        self._command = child_command("animegamer_rt.serving.worker", "--server", address)
        self._command += ["--bundle", str(bundle.folder), *engines.to_args()]
        self._command += ["--plan", options.plan] if options.plan else []
        self._command += ["--trace", str(trace)] if trace else []
        self._log_path = options.state_dir / ("worker.log" if number == 1 else f"worker-{number}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._killed: list[subprocess.Popen[bytes]] = []
        """Processes that were killed and have not ended yet."""
        self._secret, self._peer, self._unreachable, self._refused = "", b"", False, ""
        self._start_at = self._heard_at = 0.0
        self._ready_at: float | None = None
        self._failures = 0
        self.state = "starting"
        self.restarts = 0
        self.last_error, self.failed_at = "", 0.0
        self.session: str | None = None
        """The session of the job that it was given last: the history of that one is warm there."""
        self.given_at = 0.0
        self.ready_info: WorkerReady | None = None
        """What the worker sent when it was last ready; None before the first time."""
        self.resident_mib: float | None = None
        """The worker's memory after its last turn, if it is known."""

    @property
    def serving(self) -> bool:
        """Whether it takes jobs; it runs them one after the other."""
        return self.state in ("ready", "busy")

    @property
    def degraded(self) -> bool:
        """Whether turns cannot be expected to run soon."""
        return self._failures >= MAX_FAILURES and not self.serving

    @property
    def warm(self) -> bool:
        """Whether a worker has ever been ready."""
        return self.ready_info is not None

    @property
    def warmup_s(self) -> float:
        """Seconds of the turn that the worker played to warm up; 0 before it was ready."""
        return 0.0 if self.ready_info is None else self.ready_info.warmup_s

    @property
    def pid(self) -> int | None:
        """Process id, while there is a process."""
        return self._process.pid if self._process is not None else None

    def retry_in_s(self, now: float) -> float:
        """Seconds until the next start."""
        return max(0.0, self._start_at - now)

    def open_log(self) -> None:
        """Begin a new worker.log. Raises StoreError when the state folder cannot be written."""
        try:
            with self._open_log() as worker_log:
                worker_log.truncate(0)
        except OSError as error:
            raise StoreError(
                "the worker's log cannot be written",
                where=self._log_path,
                found=error.strerror or str(error),
                do="make it writable, or give another folder with --state-dir",
            ) from error

    def watch(self, now: float) -> str | None:
        """Start the worker when it is time. Returns what happened if it could not start, died or had to be ended."""
        self._killed = [process for process in self._killed if process.poll() is None]
        if self.state == "stopped":
            return None
        if self._process is None:
            if now < self._start_at:
                return None
            try:
                self._start(now)
            except OSError as error:  # for example no memory: that passes, so the server goes on and tries again
                return self._fail(now, f"{self._name} could not be started: {error.strerror or error}")
            return None
        code = self._process.poll()
        if code is not None:
            return self._clean_up(now, self._reason(code))
        if self._refused:
            return self._clean_up(now, self._refused)
        if self._unreachable:
            return self._clean_up(now, f"the connection to {self._name} was lost, and it was ended")
        limit = {"busy": self._options.worker_timeout_s, "ready": None}.get(self.state, LOADING_S)
        if limit is not None and now - self._heard_at > limit:
            longer = ", if a step takes longer here: --worker-timeout-s" if self.state == "busy" else ""
            return self._clean_up(now, f"{self._name} sent nothing for {limit:g} s and was ended{longer}")
        return None

    def receive(self, now: float) -> Iterator[Message]:
        """The worker's messages about jobs. `loading` and `ready` are handled here."""
        while True:
            try:
                routing, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                message = decode([frame.buffer for frame in frames], WORKER_LIMITS, check=False)
            except ProtocolError as error:
                log.warning("a message to the worker's socket was not understood: %s", error)
                continue
            if message.type in (LOADING, READY):
                if self._secret and message.fields.get("secret") == self._secret:
                    self._handle_worker_message(routing.bytes, message, now)
            elif routing.bytes == self._peer:
                self._heard_at = now
                if message.fields.get("resident_mib") is not None:
                    self.resident_mib = message.fields["resident_mib"]
                yield message

    def dispatch(self, job: Message, now: float) -> None:
        """Give the worker a job, to be run after those that it has. It must be serving.

        Raises TypeError or ValueError, and gives nothing, for a job that cannot be encoded.
        """
        assert self.serving
        frames = encode(job)
        if self.state == "ready":
            self.state, self._heard_at = "busy", now
        self.session, self.given_at = job.session, now
        self._send(job.type, frames)

    def send(self, message: Message) -> None:
        """Send the worker a message. A worker that is gone is noticed by `watch`."""
        self._send(message.type, encode(message))

    def _send(self, type: str, frames: Sequence[Buffer]) -> None:
        try:
            self._socket.send_multipart([self._peer, *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.warning("%s did not take %s: %s", self._name, type, error)
            self._unreachable = True

    def job_ended(self, *, has_next: bool) -> None:
        """A job is over, so this worker works. has_next: it has another one."""
        if self.state == "busy" and not has_next:
            self.state = "ready"
        self._failures = 0

    def ask_to_stop(self) -> None:
        """Tell the worker to end; `stop` waits for it. No other is started."""
        asked, self.state = self.state == "stopped", "stopped"
        if self._process is None or asked:
            return
        if self._peer:
            self.send(Message(STOP))
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """End the worker: ask it first, then kill it."""
        self.ask_to_stop()
        if self._process is None:
            return
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._kill(self._process)
        self._process = None

    def _start(self, now: float) -> None:
        self._secret, self._peer, self._ready_at = secrets.token_hex(16), b"", None
        self._unreachable, self._refused = False, ""
        self._heard_at = now
        environment = {**os.environ, WORKER_SECRET: self._secret}
        if self._share.gpu is not None:
            environment[VISIBLE_GPUS] = self._share.gpu
        with self._descriptors.released(), self._open_log() as worker_log, running_on(self._share.cores):
            if worker_log.tell() > MAX_LOG_BYTES:
                worker_log.truncate(0)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=worker_log,
                stderr=worker_log,
                env=environment,
                **_own_group(),
            )
        log.info("%s started, process %d", self._name.removeprefix("the "), self._process.pid)

    def _open_log(self) -> BinaryIO:
        """The log, which only this user may read: it may hold players' words."""
        opened = os.open(self._log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(opened, "ab")

    def _handle_worker_message(self, routing: bytes, message: Message, now: float) -> None:
        self._peer, self._heard_at = routing, now
        if message.type == READY:
            ready = WorkerReady.from_message(message)
            if ready.fingerprint != self._fingerprint:
                self._refused = "the bundle's files were changed while the server ran; start the server again"
                return
            self.ready_info, self._ready_at, self.state = ready, now, "ready"
            self.resident_mib = self.ready_info.resident_mib
            log.info("%s ready", self._name.removeprefix("the "))

    def _clean_up(self, now: float, reason: str) -> str:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._kill(self._process)
        self._process = None
        return self._fail(now, reason)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process that may be dead already. The loop stands still meanwhile, so it does not wait for long."""
        process.kill()
        try:
            process.wait(DEATH_S)
        except subprocess.TimeoutExpired:
            self._killed.append(process)
            log.error("process %d was killed and has not ended; it may hold the GPU until it does", process.pid)

    def _fail(self, now: float, reason: str) -> str:
        """Plan the next start after a worker that died or could not start. Returns the reason."""
        steady = self._ready_at is not None and now - self._ready_at > STEADY_S
        self._failures = 1 if steady else self._failures + 1
        self._secret, self._peer, self._unreachable, self._refused = "", b"", False, ""
        doublings = min(self._failures - 1, _MAX_DOUBLINGS)
        self._start_at = now + min(MAX_BACKOFF_S, self._options.backoff_s * 2**doublings)
        self.restarts += 1
        self.state = "failed" if self._failures >= MAX_FAILURES else "restarting"
        self.last_error, self.failed_at, self.session = reason, now, None
        log.error("%s; it is started again in %.1f s", reason, self.retry_in_s(now))
        return reason

    def _reason(self, code: int) -> str:
        if code == -KILLED:
            return f"{self._name} was killed (signal 9; out of memory? see journalctl -k)"
        if code < 0:
            return f"{self._name} was ended by signal {-code}"
        # A worker that ended by itself has written why.
        last_line = "".join(f": {line}" for line in tail(self._log_path)[-1:])
        return f"{self._name} ended with code {code}{last_line}"


def tail(path: Path) -> list[str]:
    """The last lines of a file that are not empty."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def _own_group() -> dict[str, Any]:
    """Ctrl-C on the terminal reaches the server only, which lets running turns finish."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
