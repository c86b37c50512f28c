"""The workers of one server: starts each, receives its messages, and restarts it when it dies or goes silent.

Knows which of them serve, not where they run (`WorkerHost`). Each has its own socket, log and count of deaths, so one
that dies takes no other with it.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Container, Iterator, Sequence

import zmq

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_identity import difference
from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.wire.codec import WORKER_LIMITS, Buffer, Message, decode, encode
from animegamer_rt.serving.wire.worker_messages import CANCEL, HEARTBEAT, JOB, LOADING, READY, STOP, WorkerReady

from .dispatch import MAX_FAILURES, Fleet
from .effects import Cancel, Ended, Give, Replace
from .local_host import LocalHost, RunningWorker, WorkerHost, share_out, shortages, usable_cores, usable_gpus
from .options import ServeOptions
from .ray_host import RayCluster, RayHost
from .sockets import ServerSockets

BACKOFF_S, MAX_BACKOFF_S = 0.5, 30.0
"""Wait before a process that died is restarted. It doubles with each death in a row, up to the second value."""
_MAX_DOUBLINGS = 30
"""2 to the power of the failures would overflow a float after 1024 of them."""
STEADY_S = 60.0
"""A process that was ready for this long does not count as a failed start when it dies."""
LOADING_S = 600.0
"""A worker that is silent for this long while it loads its engines is replaced."""
STOP_S = 5.0
END_S = 0.1
"""A killed worker's connection ends slightly before its process, which gets this long to report how it ended."""
PROBE_S = 1.0
"""How often a worker on another machine is probed: a lost connection only shows when something is sent."""

log = logging.getLogger(__name__)


class RequiredWorker:
    """What all workers of one server must share, so that a turn is the same whichever of them plays it.

    fingerprint: of the bundle. steps: `Bundle.steps_hash` of the plan. engines: identity of the first ready worker's.
    """

    def __init__(self, fingerprint: str, steps: str) -> None:
        self._bundle = fingerprint, steps
        self.engines: str | None = None

    def refuse(self, ready: WorkerReady) -> str:
        """Why a ready worker is not used; empty if it is."""
        if (ready.fingerprint, ready.steps) != self._bundle:
            return "the bundle's files changed while the server was running; restart the server"
        if self.engines is not None and (unlike := difference(ready.engines, self.engines)):
            return f"its engines differ from the first worker's; found {unlike[0]}; expected {unlike[1]}"
        self.engines = ready.engines
        return ""


class WorkerProcess:
    """`state`: starting, ready, busy, restarting, failed (but still retrying) or stopped. number: from 1."""

    def __init__(
        self,
        options: ServeOptions,
        required: RequiredWorker,
        socket: zmq.Socket[bytes],
        host: WorkerHost,
        number: int = 1,
    ) -> None:
        self._options, self._required, self._socket = options, required, socket
        self._host, self.number = host, number
        self._name = host.name
        self._process: RunningWorker | None = None
        self._killed: list[RunningWorker] = []
        """Processes that were killed and have not ended yet."""
        self._secret, self._peer, self._unreachable, self._refused = "", b"", False, ""
        self._start_at = self._heard_at = self._probed_at = 0.0
        self._ready_at: float | None = None
        self._failures, self._suspected = 0, False
        self.state = "starting"
        self.restarts = 0
        self.last_error, self.failed_at = "", 0.0
        self.ready_info: WorkerReady | None = None
        """The worker's last `ready`; None before the first."""
        self.resident_mib: float | None = None
        """The worker's memory after its last turn, if known."""

    @property
    def serving(self) -> bool:
        """Whether it accepts jobs; it runs them one after the other."""
        return self.state in ("ready", "busy")

    @property
    def degraded(self) -> bool:
        """Whether turns are unlikely to run soon."""
        return self._failures >= MAX_FAILURES and not self.serving

    @property
    def pid(self) -> int | None:
        """Process id, while there is a process on this machine."""
        return self._process.pid if self._process is not None else None

    def retry_in_s(self, now: float) -> float:
        """Seconds until the next start."""
        return max(0.0, self._start_at - now)

    def watch(self, now: float, *, suspected: bool = False) -> str | None:
        """Start the worker when it is time. Returns the reason if it failed to start, died or had to be ended.

        suspected: its job killed a worker before, so a death is the job's fault and does not count as the worker's.
        """
        self._suspected = suspected
        self._killed = [process for process in self._killed if process.poll() is None]
        if self.state == "stopped":
            return None
        if self._process is None:
            if now < self._start_at:
                return None
            try:
                self._start(now)
            except OSError as error:  # may be temporary, such as no memory: the server keeps trying
                file = f": {error.filename}" if error.filename else ""
                return self._fail(now, f"{self._name} could not be started: {error.strerror or error}{file}")
            return None
        if self._process.poll() is not None:
            return self._clean_up(now, f"{self._name} {self._process.ended()}", self._process.last_words())
        if not self._process.placed:
            self._heard_at = now
        if self._host.remote and self._peer and now - self._probed_at >= PROBE_S:
            self._probed_at = now
            self.send(Message(HEARTBEAT))
        if self._refused:
            return self._clean_up(now, self._refused)
        if self._unreachable:
            self._process.wait(END_S)
            lost = self._process.poll() is None
            end = "lost its connection and was ended" if lost else self._process.ended()
            return self._clean_up(now, f"{self._name} {end}", "" if lost else self._process.last_words())
        limit = {"busy": self._options.worker_timeout_s, "ready": None}.get(self.state, LOADING_S)
        if limit is not None and now - self._heard_at > limit:
            longer = ", if a step takes longer here: worker_timeout_s in serve --config" if self.state == "busy" else ""
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
                log.warning("ignored an invalid message to the worker's socket: %s", error)
                continue
            if message.type in (LOADING, READY):
                if self._secret and message.fields.get("secret") == self._secret:
                    self._handle_worker_message(routing.bytes, message, now)
            elif routing.bytes == self._peer:
                self._heard_at = now
                if message.fields.get("resident_mib") is not None:
                    self.resident_mib = message.fields["resident_mib"]
                yield message

    def give(self, job: Sequence[Buffer], now: float) -> None:
        """Give the worker an encoded job, to run after those it has."""
        if self.state == "ready":
            self.state, self._heard_at = "busy", now
        self._send(JOB, job)

    def send(self, message: Message) -> None:
        """Send the worker a message. `watch` notices a worker that is gone."""
        self._send(message.type, encode(message))

    def _send(self, type: str, frames: Sequence[Buffer]) -> None:
        try:
            self._socket.send_multipart([self._peer, *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            log.warning("%s could not be sent %s: %s", self._name, type, error)
            self._unreachable = True

    def job_ended(self, *, has_next: bool, failed: bool = False) -> None:
        """A job has ended. has_next: the worker has another one. failed: by the worker's fault, so it may not work."""
        if self.state == "busy" and not has_next:
            self.state = "ready"
        if not failed:
            self._failures = 0

    def replace(self) -> None:
        """End the worker with the next `watch`: it answers, but its turns fail."""
        self._refused = f"{self._name} failed {MAX_FAILURES} turns in a row and was ended"

    def ask_to_stop(self) -> None:
        """Tell the worker to end; `stop` waits for it. It is not restarted."""
        asked, self.state = self.state == "stopped", "stopped"
        if self._process is None or asked:
            return
        if self._peer:
            self.send(Message(STOP))
        self._process.release()

    def stop(self) -> None:
        """End the worker: ask it first, then kill it."""
        self.ask_to_stop()
        if self._process is None:
            return
        if not self._process.wait(STOP_S):
            self._process.kill()
        self._process = None

    def _start(self, now: float) -> None:
        self._secret, self._peer, self._ready_at = secrets.token_hex(16), b"", None
        self._unreachable, self._refused = False, ""
        self._heard_at = now
        self._process = self._host.start(self._secret)

    def _handle_worker_message(self, routing: bytes, message: Message, now: float) -> None:
        self._peer, self._heard_at = routing, now
        if message.type == READY:
            ready = WorkerReady.from_message(message)
            self._refused = self._required.refuse(ready)
            if self._refused:
                return
            self.ready_info, self._ready_at, self.state = ready, now, "ready"
            self.resident_mib = self.ready_info.resident_mib
            log.info("%s ready", self._name.removeprefix("the "))

    def _clean_up(self, now: float, reason: str, last_words: str = "") -> str:
        """End what is left of the process. last_words: its own, for the log alone."""
        assert self._process is not None
        self._process.release()
        if not self._process.kill():
            self._killed.append(self._process)
        self._process = None
        return self._fail(now, reason, last_words)

    def _fail(self, now: float, reason: str, last_words: str = "") -> str:
        """Schedule the next start of a worker that died or could not start. Returns the reason."""
        if not self._suspected:
            steady = self._ready_at is not None and now - self._ready_at > STEADY_S
            self._failures = 1 if steady else self._failures + 1
        self._secret, self._peer, self._unreachable, self._refused = "", b"", False, ""
        self._start_at = now + restart_wait_s(self._failures)
        self.restarts += 1
        self.state = "failed" if self._failures >= MAX_FAILURES else "restarting"
        self.last_error, self.failed_at = reason, now
        said = f": {last_words}" if last_words else ""
        log.error("%s%s; restarting it in %.1f s", reason, said, self.retry_in_s(now))
        return reason


def restart_wait_s(deaths: int) -> float:
    """Seconds until a process is started again that died so many times in a row."""
    return min(MAX_BACKOFF_S, BACKOFF_S * 2.0 ** min(max(0, deaths - 1), _MAX_DOUBLINGS))


class Workers:
    """All workers, by number from 1. Times are of the monotonic clock."""

    def __init__(self, processes: Sequence[WorkerProcess], cluster: RayCluster | None = None) -> None:
        self.all, self._cluster = tuple(processes), cluster

    @property
    def degraded(self) -> bool:
        """Whether turns are unlikely to run soon: no worker can be started."""
        return all(worker.degraded for worker in self.all)

    @property
    def last_error(self) -> str:
        """The reason of the last death; empty if none died."""
        return max(self.all, key=lambda worker: worker.failed_at).last_error

    def fleet(self, draining: bool, now: float) -> Fleet:
        """The workers' state, for the core. All have the same engines."""
        serving = tuple(worker.number for worker in self.all if worker.serving)
        ready = [worker.ready_info for worker in self.all if worker.ready_info is not None]
        return Fleet(
            serving,
            len(self.all),
            warm=bool(ready),
            degraded=self.degraded,
            engines=ready[0].engines if ready else None,
            warmup_s=max((one.warmup_s for one in ready), default=0.0),
            last_error=self.last_error,
            retry_in_s=0.0 if serving else min(worker.retry_in_s(now) for worker in self.all),
            draining=draining,
        )

    def carry_out(self, effect: Give | Cancel | Ended | Replace, now: float) -> None:
        """Pass on the core's effect on a worker."""
        worker = self.all[effect.worker - 1]
        match effect:
            case Give(frames=frames):
                worker.give(frames, now)
            case Cancel(job=job):
                worker.send(Message(CANCEL, id=job))
            case Ended(has_next=has_next, failed=failed):
                worker.job_ended(has_next=has_next, failed=failed)
            case Replace():
                worker.replace()

    def watch(self, now: float, suspected: Container[int | None] = ()) -> Iterator[tuple[int, str]]:
        """Start those that are due. Yields each that failed to start, died or had to be ended, and why.

        suspected: those whose job is to blame if they die.
        """
        for worker in self.all:
            if (reason := worker.watch(now, suspected=worker.number in suspected)) is not None:
                yield worker.number, reason

    def receive(self, now: float) -> Iterator[tuple[int, Message]]:
        """Their messages about jobs."""
        for worker in self.all:
            for message in worker.receive(now):
                yield worker.number, message

    def stop(self) -> None:
        """End all: ask each first, then wait for them together."""
        for worker in self.all:
            worker.ask_to_stop()
        for worker in self.all:
            worker.stop()
        if self._cluster is not None:
            self._cluster.stop()


def open_workers(options: ServeOptions, bundle: Bundle, sockets: ServerSockets) -> Workers:
    """The configured workers, not started yet, with new logs; what they have to share is logged.

    Raises ClusterError if the Ray cluster cannot be joined, StoreError if the state folder cannot be written.
    """
    cluster, hosts = None, list[WorkerHost]()
    if options.ray is not None:
        assert sockets.worker_key is not None
        cluster = RayCluster(options)
        cluster.join()
        for number, (_, address) in enumerate(sockets.workers, 1):
            hosts.append(RayHost(cluster, options, bundle, address, sockets.worker_key, number))
    else:
        cores, gpus, device = usable_cores(), usable_gpus(), options.engines.device
        for sentence in shortages(options.workers, device, len(cores) or os.cpu_count() or 1, len(gpus)):
            log.warning("%s", sentence)
        shares = share_out(options.workers, device, cores, gpus)
        for number, ((_, address), share) in enumerate(zip(sockets.workers, shares, strict=True), 1):
            hosts.append(LocalHost(options, bundle, address, number, share))
    processes, required = [], RequiredWorker(bundle.fingerprint, bundle.steps_hash(options.plan))
    for number, ((socket, _), host) in enumerate(zip(sockets.workers, hosts, strict=True), 1):
        host.open_log()
        processes.append(WorkerProcess(options, required, socket, host, number))
    return Workers(processes, cluster)
