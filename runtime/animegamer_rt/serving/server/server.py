"""Runs the server's event loop: one thread, which polls the clients' sockets and the workers'.

Sockets, scheduling, requests and status are in their own modules. SIGINT, SIGTERM and a terminal that is closed drain:
running and waiting turns finish, new ones are refused. A second SIGINT or SIGTERM ends the server at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

import zmq

from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import INTERRUPTED, StoreError
from animegamer_rt.profiling.libraries import check_libraries
from animegamer_rt.profiling.process_memory import release_free
from animegamer_rt.profiling.trace import check_trace
from animegamer_rt.serving.store import Quota, Store, read_keep_shots

from .ahead import AheadTurns
from .clients import Clients
from .descriptors import raise_limit
from .gateway_process import GatewayProcess
from .handlers import CONTROL, TURNS, RequestHandlers
from .instruction_filter import InstructionFilter
from .job_queue import JobQueue
from .log_lines import log_to_stderr
from .metrics import Metrics, serve_metrics
from .options import ServeOptions, check
from .parent_process import ParentProcess
from .ray_host import own_address
from .scheduler import Scheduler
from .service_manager import ServiceManager
from .sockets import ServerSockets
from .status import ServerStatus
from .workers import Workers, open_workers

IDLE_POLL_MS, RETRY_POLL_MS = 100, 4
"""Longest sleep of the loop: with nothing to do, and while a message waits for its client to read. The second doubles
up to the first while nothing happens: a client that has stopped reading keeps no processor busy."""
REQUESTS_PER_ROUND = 32
"""Requests taken from one socket before the other sockets are looked at."""
SWEEP_S, SWEEP_MORE_S = 60.0, 1.0
METRICS_S = 1.0
FLUSH_S = 2.0
"""At the end, how long clients have to read the messages that are queued for them."""

log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> int:
    """Serve until a signal comes; returns the exit code. Raises AnimeGamerError for what keeps it from starting."""
    check(options)
    log_to_stderr(options.log_format)
    bundle = open_bundle(options.bundle)
    bundle.plan(options.plan)
    if options.ray is None:  # a cluster's nodes have libraries of their own
        check_libraries(options.engines, reader=bundle.manifest.reader is not None)
    if options.trace is not None:
        check_trace(options.trace)
    instruction_filter = InstructionFilter(options.block_list, options.allow_list)
    keep_shots = read_keep_shots(options.keep_shots)
    max_age_s = None if options.keep_days is None else options.keep_days * 86_400
    quota = Quota(max_bytes=int(options.quota_gib * 2**30), max_age_s=max_age_s)
    parent = None if options.parent is None else ParentProcess(options.parent)
    with contextlib.ExitStack() as stack:
        descriptors = raise_limit(options.workers)
        sockets = ServerSockets(options, descriptors, None if options.ray is None else own_address(options.ray))
        stack.callback(sockets.close)
        store = stack.enter_context(Store(options.state_dir, keep_shots=keep_shots, quota=quota))
        workers, shortages = open_workers(options, bundle, sockets)
        for sentence in shortages:
            log.warning("%s", sentence)
        workers.open_logs()
        stack.callback(workers.stop)
        metrics, queue = Metrics(options.workers), JobQueue(options)
        gateway = None
        if options.web is not None:
            gateway = GatewayProcess(options, sockets)
            stack.callback(gateway.stop)
        status = ServerStatus(options, bundle, sockets, store, queue, workers, metrics)
        ahead = AheadTurns(options, store, queue, metrics, instruction_filter, bundle.manifest.reader)
        scheduler = Scheduler(options, store, queue, workers, metrics, ahead)
        handlers = RequestHandlers(options, status, store, queue, workers, scheduler, instruction_filter)
        clients = Clients(options.connections, int(options.send_queue_mib * 2**20), metrics)
        server = Server(
            options, sockets, store, workers, queue, status, scheduler, handlers, clients, metrics, parent, gateway
        )
        address = None
        if options.metrics_port != 0:
            address = stack.enter_context(serve_metrics(metrics, _metrics_port(options, sockets.port)))
            log.info("metrics on %s", address)
        if gateway is not None:
            log.info("web page on %s", gateway.url)
        if options.port == 0:
            say(
                json.dumps(
                    sockets.describe()
                    | {"pid": os.getpid(), "metrics": address}
                    | ({} if gateway is None else {"web": gateway.url})
                )
            )
        with server.signals():
            return server.run()


class Server:
    """The event loop."""

    def __init__(
        self,
        options: ServeOptions,
        sockets: ServerSockets,
        store: Store,
        workers: Workers,
        queue: JobQueue,
        status: ServerStatus,
        scheduler: Scheduler,
        handlers: RequestHandlers,
        clients: Clients,
        metrics: Metrics,
        parent: ParentProcess | None = None,
        gateway: GatewayProcess | None = None,
    ) -> None:
        self._parent, self._gateway = parent, gateway
        self._options, self._sockets, self._store, self._workers = options, sockets, store, workers
        self._queue, self._status, self._scheduler, self._handlers = queue, status, scheduler, handlers
        self._clients, self._metrics = clients, metrics
        self._service, self._worker_spoke = ServiceManager(), True
        self._signals = 0
        self._announced = False
        self._sweep_at = self._metrics_at = 0.0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Within, SIGINT, SIGTERM and SIGHUP (on Windows also CTRL_BREAK) are counted instead of raised."""
        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        names = [name for name in names if name != "SIGHUP" or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN]
        before = {name: signal.signal(getattr(signal, name), self._count_signal) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def run(self) -> int:
        """Serve until drained; returns the exit code."""
        log.info("listening on %s, loading the engines", self._sockets.address)
        waiting, retry_ms, drain_until = False, RETRY_POLL_MS, float("inf")
        while True:
            ready = self._sockets.poll(retry_ms if waiting else IDLE_POLL_MS)
            self._round(ready, time.monotonic())
            waiting, sent = self._clients.retry()
            retry_ms = RETRY_POLL_MS if ready or sent or not waiting else min(2 * retry_ms, IDLE_POLL_MS)
            if self._parent is not None and self._parent.ended and not self._signals:
                log.info("process %s, which the server belongs to, has ended", self._options.parent)
                self._signals = 1
            if self._signals and not self._status.draining:
                self._status.draining = True
                drain_until = time.monotonic() + self._options.drain_s
                self._service.stopping()
                log.info("draining: running turns finish, new ones are refused")
            if self._signals > 1:
                return INTERRUPTED
            if self._status.draining and (self._queue.idle or time.monotonic() >= drain_until):
                break
        self._scheduler.end_all()
        flush_until = time.monotonic() + FLUSH_S
        while self._clients.retry()[0] and time.monotonic() < flush_until and self._signals < 2:
            self._sockets.poll(RETRY_POLL_MS)
        log.info("stopped")
        return 0

    def _round(self, ready: set[zmq.Socket[bytes]], now: float) -> None:
        """Handle requests, then the workers' messages, then what has become due.

        The turn socket comes before the control socket: a cancel may be for a turn that arrived in the same round.
        """
        for socket, name in ((self._sockets.turns, TURNS), (self._sockets.control, CONTROL)):
            if socket in ready:
                self._handle_requests(socket, name)
        for routing in self._sockets.take_disconnected():
            client = self._clients.disconnected(routing)
            if client is not None:
                self._scheduler.client_gone(client)
        if not ready <= {self._sockets.turns, self._sockets.control}:
            for worker, message in self._workers.receive(now):
                self._worker_spoke = True
                self._scheduler.on_worker_message(worker, message, now)
        for worker, death in self._workers.watch(now):
            self._scheduler.on_worker_death(worker, death, now)
        if self._gateway is not None:
            self._gateway.watch(now)
        self._scheduler.stop_overdue(now)
        self._scheduler.dispatch(now)
        if self._workers.serving and not self._announced:
            self._announced = True
            say(f"ready {self._sockets.address} (control {self._sockets.port + 1})")
            self._service.ready()
            if self._gateway is not None:
                say(f"page {self._gateway.url}")
        if self._working and self._service.alive(now):
            self._worker_spoke = False
        if now >= self._sweep_at:
            self._sweep(now)
        if now >= self._metrics_at:
            self._metrics_at = now + METRICS_S
            self._update_metrics(now)

    @property
    def _working(self) -> bool:
        """Whether turns run as they should: none waits, all workers load, or one has spoken since the last WATCHDOG."""
        if self._workers.degraded:
            return False
        return self._worker_spoke or self._queue.idle or not self._workers.serving

    def _update_metrics(self, now: float) -> None:
        self._metrics.load(
            queue=len(self._queue.waiting),
            running=len(self._queue.running),
            sessions=len(self._queue.sessions_in_use(now)),
            connections=self._sockets.connections,
        )
        workers = ((worker.number, worker.serving, worker.resident_mib) for worker in self._workers.all)
        self._metrics.health(self._status.state == "ready", workers)

    def _sweep(self, now: float) -> None:
        release_free()
        self._scheduler.removals.finish_all()
        try:
            in_use = self._queue.sessions_in_use(now) | {job.session for job in self._queue.jobs}
            swept = self._store.sweep(time.time(), in_use)
        except StoreError as error:
            log.error("the sessions could not be swept: %s", error)
            self._sweep_at = now + SWEEP_S
            return
        self._scheduler.exports.delete_sessions(swept.removed)
        if swept.removed or swept.shots_dropped:
            log.info(
                "swept: %d sessions removed, shots of %d dropped, %.1f MiB freed, %.1f MiB stored",
                len(swept.removed),
                len(swept.shots_dropped),
                swept.freed_bytes / 2**20,
                swept.stored_bytes / 2**20,
            )
        self._sweep_at = now + (SWEEP_MORE_S if swept.more else SWEEP_S)

    def _handle_requests(self, socket: zmq.Socket[bytes], name: str) -> None:
        for _ in range(REQUESTS_PER_ROUND):
            try:
                routing, *frames = self._sockets.receive(socket)
            except zmq.Again:
                return
            find = self._clients.get_or_add if name == TURNS else self._clients.for_control
            self._handlers.handle(find(socket, routing), name, frames)

    def _count_signal(self, number: int, frame: FrameType | None) -> None:
        # A terminal that is closed says SIGHUP, and its shell says it again: that is no second wish.
        self._signals = self._signals + 1 if number != getattr(signal, "SIGHUP", None) else max(self._signals, 1)


def say(line: str) -> None:
    """Print a line. Who started the server may have closed its end of stdout: that is no reason to stop."""
    try:
        print(line, flush=True)
    except (OSError, ValueError) as error:
        log.warning("stdout is closed (%s); it would have said: %s", error, line)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # what is left in its buffer would fail again at the end


def _metrics_port(options: ServeOptions, port: int) -> int:
    """The port after the server's two, unless another was asked for; any free one if theirs were any free ones, too."""
    if options.metrics_port is not None:
        return options.metrics_port
    return port + 2 if options.port else 0
