"""The front process: one thread, one poll loop over the clients' sockets and the worker's.

Knows what is served in which order and how the server ends; every noun of it has a room of its own. SIGINT and SIGTERM
drain: running and waiting turns finish, new ones are refused; a second signal ends at once.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

import zmq

from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import INTERRUPTED, StoreError
from animegamer_rt.profiling.trace import check_trace
from animegamer_rt.serving.store import Quota, Store, read_keep_shots

from .clients import Clients
from .handlers import CONTROL, TURNS, RequestHandlers
from .instruction_filter import InstructionFilter
from .job_queue import JobQueue
from .metrics import Metrics, page
from .options import ServeOptions, check
from .scheduler import Scheduler
from .sockets import ServerSockets
from .status import ServerStatus
from .worker_process import WorkerProcess

IDLE_POLL_MS, RETRY_POLL_MS = 100, 4
"""How long the loop sleeps: with nothing to do, and while something waits for a client to read."""
MESSAGES_A_ROUND = 32
"""Requests taken from one socket before the others have their turn."""
SWEEP_S, SWEEP_MORE_S = 60.0, 1.0
TELL_METRICS_S = 1.0
FLUSH_S = 2.0
"""At the end, how long clients have to read what was already theirs."""

log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> int:
    """Serve until a signal comes; returns the exit code. Raises AnimeGamerError for what keeps it from starting."""
    check(options)
    _log_to_stderr()
    bundle = open_bundle(options.bundle)
    bundle.plan(options.plan)
    if options.trace is not None:
        check_trace(options.trace)
    words, keep_shots = InstructionFilter(options.block_list), read_keep_shots(options.keep_shots)
    most_age_s = None if options.keep_days is None else options.keep_days * 86_400
    quota = Quota(most_bytes=int(options.quota_gib * 2**30), most_age_s=most_age_s)
    with contextlib.ExitStack() as stack:
        doors = ServerSockets(options)
        stack.callback(doors.close)
        store = stack.enter_context(Store(options.state_dir, keep_shots=keep_shots, quota=quota))
        supervisor = WorkerProcess(options, bundle, doors.worker, doors.worker_address)
        supervisor.open_log()
        stack.callback(supervisor.stop)
        metrics, admission = Metrics(), JobQueue(options)
        facts = ServerStatus(options, bundle, doors, store, admission, supervisor, metrics)
        turns = Scheduler(options, store, admission, supervisor, metrics)
        desk = RequestHandlers(options, facts, store, admission, supervisor, turns, words)
        clients = Clients(options.connections, int(options.send_queue_mib * 2**20), metrics)
        front = Server(options, doors, store, supervisor, admission, facts, turns, desk, clients, metrics)
        if options.metrics_port != 0:
            log.info("metrics on %s", stack.enter_context(page(metrics, _metrics_port(options, doors.port))))
        with front.signals():
            return front.run()


class Server:
    """The loop."""

    def __init__(
        self,
        options: ServeOptions,
        doors: ServerSockets,
        store: Store,
        supervisor: WorkerProcess,
        admission: JobQueue,
        facts: ServerStatus,
        turns: Scheduler,
        desk: RequestHandlers,
        clients: Clients,
        metrics: Metrics,
    ) -> None:
        self._options, self._doors, self._store, self._supervisor = options, doors, store, supervisor
        self._admission, self._facts, self._turns, self._desk = admission, facts, turns, desk
        self._clients, self._metrics = clients, metrics
        self._signals = 0
        self._announced = False
        self._sweep_at = self._tell_at = 0.0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Within, SIGINT and SIGTERM (on Windows also CTRL_BREAK) are counted instead of raised."""
        names = [name for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), self._count_signal) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def run(self) -> int:
        """Serve until drained; returns the exit code."""
        log.info("listening on %s, warming up", self._doors.address)
        waiting, drain_until = False, float("inf")
        while True:
            ready = self._doors.wait(RETRY_POLL_MS if waiting else IDLE_POLL_MS)
            self._work(ready, time.monotonic())
            waiting = self._clients.retry()
            if self._signals and not self._facts.draining:
                self._facts.draining = True
                drain_until = time.monotonic() + self._options.drain_s
                log.info("draining: running turns finish, new ones are refused")
            if self._signals > 1:
                return INTERRUPTED
            if self._facts.draining and (self._admission.idle or time.monotonic() >= drain_until):
                break
        self._turns.end_all()
        flush_until = time.monotonic() + FLUSH_S
        while self._clients.retry() and time.monotonic() < flush_until and self._signals < 2:
            self._doors.wait(RETRY_POLL_MS)
        log.info("stopped")
        return 0

    def _work(self, ready: set[zmq.Socket[bytes]], now: float) -> None:
        """One round: turns, the cancels that may be meant for them, what the worker says, then what has become due."""
        for socket, name in ((self._doors.turns, TURNS), (self._doors.control, CONTROL)):
            if socket in ready:
                self._answer(socket, name)
        for message in self._supervisor.receive(now):
            self._turns.heard(message, now)
        death = self._supervisor.watch(now)
        if death is not None:
            self._turns.worker_died(death, now)
        self._turns.watch_deadlines(now)
        self._turns.start_next(now)
        if self._supervisor.serving and not self._announced:
            self._announced = True
            print(f"ready {self._doors.address} (control {self._doors.port + 1})", flush=True)
        if now >= self._sweep_at:
            self._sweep(now)
        if now >= self._tell_at:
            self._tell_at = now + TELL_METRICS_S
            self._tell_metrics(now)

    def _tell_metrics(self, now: float) -> None:
        self._metrics.load(
            queue=len(self._admission.waiting),
            running=int(self._admission.running is not None),
            sessions=self._admission.sessions(now),
            connections=self._doors.connections,
        )
        self._metrics.health(self._facts.state == "ready", self._supervisor.facts.get("resident_mib"))

    def _sweep(self, now: float) -> None:
        try:
            in_use = self._admission.in_use(now) | {job.session for job in self._admission.jobs}
            swept = self._store.sweep(time.time(), in_use)
        except StoreError as error:
            log.error("the sessions could not be swept: %s", error)
            self._sweep_at = now + SWEEP_S
            return
        self._turns.drop_exports(swept.removed)
        if swept.removed or swept.shots_dropped:
            log.info(
                "swept: %d sessions removed, shots of %d dropped, %.1f MiB freed, %.1f MiB stored",
                len(swept.removed),
                len(swept.shots_dropped),
                swept.freed_bytes / 2**20,
                swept.stored_bytes / 2**20,
            )
        self._sweep_at = now + (SWEEP_MORE_S if swept.more else SWEEP_S)

    def _answer(self, socket: zmq.Socket[bytes], name: str) -> None:
        for _ in range(MESSAGES_A_ROUND):
            try:
                routing, *frames = self._doors.receive(socket)
            except zmq.Again:
                return
            self._desk.answer(self._clients.of(socket, routing), name, frames)

    def _count_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1


def _metrics_port(options: ServeOptions, port: int) -> int:
    """The port after the server's two, unless another was asked for; any free one if theirs were any free ones too."""
    if options.metrics_port is not None:
        return options.metrics_port
    return port + 2 if options.port else 0


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("animegamer_rt.serving.server")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
