"""Starts the worker process, listens to it, and starts it again when it died or says nothing any more.

Knows one process and its socket; nothing of turns. Between the starts it waits longer each time. The worker's
stdin is a pipe that nobody writes to: it closes when this process is gone, however it went, and the worker ends.
"""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import ProtocolError, StoreError
from animegamer_rt.serving.wire import WORKER_LIMITS, WORKER_SECRET, Message, decode, encode

from .options import ServeOptions

FAILURES = 3
"""Deaths in a row after which a job fails, and after which the server says `degraded` until a worker is ready."""
MOST_BACKOFF_S = 30.0
_MOST_DOUBLINGS = 30
"""2 to the power of the failures would be too large for a float after 1024 of them."""
STEADY_S = 60.0
"""A worker that was ready for this long does not count as a failed start when it dies."""
LOADING_S = 600.0
"""A worker that says nothing for this long while it loads its engines is taken for dead."""
STOP_S = 5.0
DEATH_S = 1.0
"""How long to wait for one that was killed; a driver or a network disk that hangs may keep it for ever."""
LOG_TAIL_BYTES = 4096
MOST_LOG_BYTES = 16 * 2**20
"""The next worker starts a longer log afresh."""

log = logging.getLogger(__name__)


class WorkerProcess:
    """`state`: starting, ready, busy, restarting, failed (it goes on trying) or stopped."""

    def __init__(self, options: ServeOptions, bundle: Bundle, door: zmq.Socket[bytes], address: str) -> None:
        self._options, self._door = options, door
        self._command = [sys.executable, "-m", "animegamer_rt.serving.worker", "--front", address]
        self._command += ["--bundle", str(bundle.folder), *options.engines.to_args()]
        self._command += ["--plan", options.plan] if options.plan else []
        self._command += ["--trace", str(options.trace)] if options.trace else []
        self._log_path = options.state_dir / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._undead: list[subprocess.Popen[bytes]] = []
        """Killed, and not gone yet."""
        self._secret, self._peer = "", b""
        self._start_at = self._heard_at = 0.0
        self._ready_at: float | None = None
        self._failures = 0
        self.state = "starting"
        self.restarts = 0
        self.last_error = ""
        self.facts: dict[str, Any] = {}
        """What the worker said of itself when it was last ready."""

    @property
    def serving(self) -> bool:
        """Whether it can be given jobs; it runs them one after the other."""
        return self.state in ("ready", "busy")

    @property
    def degraded(self) -> bool:
        """Whether turns cannot be expected to run soon."""
        return self._failures >= FAILURES and not self.serving

    @property
    def warm(self) -> bool:
        """Whether a worker has ever been ready."""
        return bool(self.facts)

    @property
    def pid(self) -> int | None:
        """Process id, while there is a process."""
        return self._process.pid if self._process is not None else None

    def retry_in_s(self, now: float) -> float:
        """Seconds until the next start."""
        return max(0.0, self._start_at - now)

    def open_log(self) -> None:
        """Begin a new log of the worker's own words. Raises StoreError when the state folder cannot be written."""
        try:
            self._log_path.write_bytes(b"")
        except OSError as error:
            raise StoreError(
                "the worker's log cannot be written",
                where=self._log_path,
                found=error.strerror or str(error),
                do="make it writable, or give another folder with --state-dir",
            ) from error

    def watch(self, now: float) -> str | None:
        """Start the worker when it is time. Returns what happened if it did not start, has died or had to be ended."""
        self._undead = [process for process in self._undead if process.poll() is None]
        if self.state == "stopped":
            return None
        if self._process is None:
            if now < self._start_at:
                return None
            try:
                self._start(now)
            except OSError as error:  # no memory or no processes left, say: that passes, and the players stay
                return self._fail(now, f"the worker could not be started: {error.strerror or error}")
            return None
        code = self._process.poll()
        if code is not None:
            # A worker that ended by itself has said why; one that was killed has not.
            return self._bury(now, f"the worker ended with code {code}{self._last_words() if code > 0 else ''}")
        limit = {"busy": self._options.worker_timeout_s, "ready": None}.get(self.state, LOADING_S)
        if limit is not None and now - self._heard_at > limit:
            return self._bury(now, f"the worker said nothing for {limit:g} s and was ended")
        return None

    def receive(self, now: float) -> Iterator[Message]:
        """What the worker says about its job; that it loads or is ready is noted here."""
        while True:
            try:
                routing, *frames = self._door.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                message = decode([frame.buffer for frame in frames], WORKER_LIMITS, check=False)
            except ProtocolError as error:
                log.warning("a message to the worker's door was not understood: %s", error)
                continue
            if message.type in ("loading", "ready"):
                if self._secret and message.fields.get("secret") == self._secret:
                    self._greet(routing.bytes, message, now)
            elif routing.bytes == self._peer:
                self._heard_at = now
                if "resident_mib" in message.fields:
                    self.facts["resident_mib"] = message.fields["resident_mib"]
                yield message

    def give(self, job: Message, now: float) -> None:
        """Hand over a job, to be run after those that the worker has. It must be serving."""
        assert self.serving
        if self.state == "ready":
            self.state, self._heard_at = "busy", now
        self.send(job)

    def send(self, message: Message) -> None:
        """Say something to the worker; a worker that is gone is noticed by `watch`."""
        try:
            self._door.send_multipart([self._peer, *encode(message)], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.warning("the worker did not take %s: %s", message.type, error)

    def rest(self, *, more: bool) -> None:
        """A job is over, so the worker works. `more`: it has another."""
        if self.state == "busy" and not more:
            self.state = "ready"
        self._failures = 0

    def stop(self) -> None:
        """End the worker: asked first, then by force."""
        self.state = "stopped"
        if self._process is None:
            return
        if self._peer:
            self.send(Message("stop"))
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._kill(self._process)
        self._process = None

    def _start(self, now: float) -> None:
        self._secret, self._peer, self._ready_at = secrets.token_hex(16), b"", None
        self._heard_at = now
        with self._log_path.open("ab") as words:
            if words.tell() > MOST_LOG_BYTES:
                words.truncate(0)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                env={**os.environ, WORKER_SECRET: self._secret},
                **_own_group(),
            )
        log.info("worker started, process %d", self._process.pid)

    def _greet(self, routing: bytes, message: Message, now: float) -> None:
        self._peer, self._heard_at = routing, now
        if message.type == "ready":
            self.facts, self._ready_at, self.state = dict(message.fields), now, "ready"
            log.info("worker ready")

    def _bury(self, now: float, reason: str) -> str:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._kill(self._process)
        self._process = None
        return self._fail(now, reason)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process that may be dead already. The players wait meanwhile, so not for long."""
        process.kill()
        try:
            process.wait(DEATH_S)
        except subprocess.TimeoutExpired:
            self._undead.append(process)
            log.error("process %d was killed and does not die; it may hold the GPU until it does", process.pid)

    def _fail(self, now: float, reason: str) -> str:
        """Without a worker: when the next one is started, and what to say meanwhile. Returns the reason."""
        steady = self._ready_at is not None and now - self._ready_at > STEADY_S
        self._failures = 1 if steady else self._failures + 1
        self._secret, self._peer = "", b""
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        self._start_at = now + min(MOST_BACKOFF_S, self._options.backoff_s * 2**doublings)
        self.restarts += 1
        self.state = "failed" if self._failures >= FAILURES else "restarting"
        self.last_error = reason
        log.error("%s; it is started again in %.1f s", reason, self.retry_in_s(now))
        return reason

    def _last_words(self) -> str:
        return "".join(f": {line}" for line in tail(self._log_path)[-1:])


def tail(path: Path) -> list[str]:
    """The last lines of a file that say something."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def _own_group() -> dict[str, Any]:
    """Ctrl-C on the terminal is for the front alone, which lets running turns finish."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
