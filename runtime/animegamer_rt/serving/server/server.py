"""The server: one thread with one loop that polls the sockets and carries out what the core decides.

SIGINT, SIGTERM and a closed terminal drain: running and waiting turns finish, new ones are refused. A second SIGINT or
SIGTERM ends the server at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import zmq

from animegamer_rt.bundle.language_file import bundle_language
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.errors import INTERRUPTED
from animegamer_rt.profiling.libraries import check_libraries
from animegamer_rt.serving.log_lines import LinesWithoutWaiting
from animegamer_rt.serving.wire.schema import STAGES

from .clients import Clients
from .core import ServerCore
from .descriptors import raise_limit
from .effects import Cancel, Counted, Done, Effect, Ended, Give, Logged, Lost, Replace, Send, SendError, Started
from .gateway_process import GatewayProcess
from .guesses import Guesser
from .instruction_filter import InstructionFilter
from .metrics import Metrics, serve_metrics
from .options import ServeOptions, check
from .ray_host import own_address
from .requests import Requests
from .sockets import ServerSockets
from .status import ServerStatus
from .storage import Storage, open_store
from .supervisor import Supervisor
from .workers import Workers, open_workers

IDLE_POLL_MS, RETRY_POLL_MS = 250, 1
"""Longest sleep of the loop, when idle and when a message waits for its client to read. The second doubles up to the
first while nothing happens: a client that has stopped reading must not keep the CPU busy."""
TICK_S = 0.02
"""Interval between checks of workers and deadlines while workers send a turn's messages."""
DRAIN_S = 60.0
"""How long turns may take to finish once the server was asked to stop."""
UPKEEP_S = 1.0
"""Interval between updates of the metrics, and checks of the --parent process."""
MAX_STEP_S = 1.0
"""Only this much of a longer time between two readings of the clock counts; the loop reads it four times a second."""
FLUSH_S = 2.0
"""At the end, how long clients have to read their queued messages."""

log = logging.getLogger(__name__)


def serve(options: ServeOptions) -> int:
    """Serve until a signal comes; returns the exit code. Raises AnimeGamerError if the server cannot start."""
    check(options)
    log_to_stderr()
    bundle = open_bundle(options.bundle, options.engines.width_height)
    bundle.plan(options.plan)
    if options.ray is None:  # a cluster's nodes have their own libraries
        check_libraries(options.engines, reader=bundle.manifest.reader is not None)
    with contextlib.ExitStack() as stack:
        ray_address = None if options.ray is None else own_address(options.ray)
        geometry = bundle.manifest.geometry
        rgba = 4 * geometry.height * geometry.width
        sockets = ServerSockets(options, raise_limit(options.workers), ray_address, rgba)
        stack.callback(sockets.close)
        storage = Storage(stack.enter_context(open_store(options)), options.state_dir)
        workers = open_workers(options, bundle, sockets)
        stack.callback(workers.stop)
        gateway = None if options.web is None else GatewayProcess(options, sockets)
        if gateway is not None:
            stack.callback(gateway.stop)
        server = Server(options, bundle, sockets, storage, workers, gateway)
        address = None
        if options.metrics_port != 0:
            page = serve_metrics(server.upkeep.metrics, _metrics_port(options, sockets.port))
            address = stack.enter_context(page)
            log.info("metrics on %s", address)
        if gateway is not None:
            log.info("web page on %s", gateway.url)
        if options.port == 0:
            web = {} if gateway is None else {"web": gateway.url}
            print_line(json.dumps({**sockets.describe(), "pid": os.getpid(), "metrics": address, **web}))
        with server.signals():
            return server.run()


class Server:
    """The event loop: passes events to the core and to `requests`, and carries out the effects."""

    def __init__(
        self,
        options: ServeOptions,
        bundle: Bundle,
        sockets: ServerSockets,
        storage: Storage,
        workers: Workers,
        gateway: GatewayProcess | None,
    ) -> None:
        instruction_filter = InstructionFilter(options.block_list, options.allow_list)
        self._sockets, self._workers = sockets, workers
        guesser = Guesser(bundle.manifest.reader, bundle_language(bundle), instruction_filter)
        self._core = ServerCore(options, storage, guesser)
        status = ServerStatus(options, bundle, sockets, storage.store, workers, self._core)
        self._requests = Requests(options, status, storage, self._core, instruction_filter)
        self.upkeep = Upkeep(self._core, sockets, workers, gateway, Supervisor(options.parent))
        self._clients = Clients(sockets, options, self.upkeep.metrics)
        self._clock = AwakeClock()
        self._signals, self._draining, self._tick_at = 0, False, 0.0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Inside, SIGINT, SIGTERM and SIGHUP (on Windows also CTRL_BREAK) are counted instead of raised."""
        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            names.remove("SIGHUP")
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
            self._round(ready, self._clock())
            waiting, sent = self._clients.retry()
            retry_ms = RETRY_POLL_MS if ready or sent or not waiting else min(2 * retry_ms, IDLE_POLL_MS)
            if self.upkeep.parent_ended and not self._signals:
                log.info("the --parent process has ended")
                self._signals = 1
            if self._signals and not self._draining:
                self._draining = True
                drain_until = self._clock() + DRAIN_S
                self._tick(self._clock())
                self.upkeep.supervisor.stopping()
                log.info("draining: running turns finish, new ones are refused")
            if self._signals > 1:
                return INTERRUPTED
            if self._draining and (self._core.queue.idle or self._clock() >= drain_until):
                break
        self._carry_out(self._core.end(), self._clock())
        flush_until = self._clock() + FLUSH_S
        while self._clients.retry()[0] and self._clock() < flush_until and self._signals < 2:
            self._sockets.poll(RETRY_POLL_MS)
        log.info("stopped")
        return 0

    def _round(self, ready: set[zmq.Socket[bytes]], now: float) -> None:
        """Handle requests, then the workers' messages, then whatever is due."""
        only_said = False
        for client, socket, frames in self._clients.requests(ready):
            self._carry_out(self._requests.handle(client, socket, frames, self._clock()), now)
        for client in self._clients.disconnected():
            self._carry_out(self._core.client_gone(client), now)
        for worker, message in self._workers.receive(now):  # also those sent since `poll`: silence is judged below
            only_said = len(ready) == 1
            self.upkeep.worker_active = True
            self._carry_out(self._core.worker_sent(worker, message, now), now)
        if only_said and now < self._tick_at:
            return
        for worker, death in self._workers.watch(now, self._core.queue.suspected_workers):
            self.upkeep.metrics.worker_restarts.labels(worker).inc()
            fleet = self._workers.fleet(self._draining, now)
            self._carry_out(self._core.worker_died(worker, death, fleet, now), now)
        self._tick(now)
        self.upkeep.run_due(now)

    def _tick(self, now: float) -> None:
        self._tick_at = now + TICK_S
        self._carry_out(self._core.tick(self._workers.fleet(self._draining, now), now), now)

    def _carry_out(self, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Send(client, message, delivery):
                    client.send(message, delivery)
                case SendError(client, error, parent, session, turn):
                    client.send_error(error, parent, session, turn)
                case Give() | Cancel() | Ended() | Replace():
                    self._workers.carry_out(effect, now)
                case Started(job, start):
                    self._carry_out(self._requests.open_started(job, start, now), now)
                case _:
                    self.upkeep.note(effect)

    def _count_signal(self, number: int, frame: FrameType | None) -> None:
        # Closing a terminal sends SIGHUP, and its shell may repeat it: that is not a second request.
        self._signals = self._signals + 1 if number != getattr(signal, "SIGHUP", None) else max(self._signals, 1)


class AwakeClock:
    """The clock of every time-out in the server: time in which the server itself did not run does not count.

    After a pause of the machine (SIGSTOP, `docker pause`, a snapshot) or a long system call, workers and clients look
    silent although only the server was. It reads its sockets before it holds that silence against anybody. Call it for
    seconds that never run backwards, like `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_at = self._now = clock()

    def __call__(self) -> float:
        read_at = self._clock()
        self._now += min(read_at - self._read_at, MAX_STEP_S)
        self._read_at = read_at
        return self._now


class Upkeep:
    """The operator's side: metrics and log lines, systemd, the gateway process.

    gateway: None if no page is served. worker_active: whether a worker sent anything since systemd's last notice.
    parent_ended: whether the --parent process has.
    """

    def __init__(
        self,
        core: ServerCore,
        sockets: ServerSockets,
        workers: Workers,
        gateway: GatewayProcess | None,
        supervisor: Supervisor,
    ) -> None:
        self._core, self._sockets, self._workers, self._gateway = core, sockets, workers, gateway
        self.metrics, self.supervisor = Metrics(len(workers.all)), supervisor
        self.worker_active, self.parent_ended = True, False
        self._announced, self._due_at = False, 0.0

    def run_due(self, now: float) -> None:
        """Do what is due."""
        if self._gateway is not None:
            self._gateway.watch(now)
        if self._core.dispatch.fleet.serving and not self._announced:
            self._announced = True
            print_line(f"ready {self._sockets.address} (control {self._sockets.port + 1})")
            self.supervisor.ready()
            if self._gateway is not None:
                print_line(f"page {self._gateway.url}")
        if self.supervisor.watchdog_s is not None and self._working and self.supervisor.alive(now):
            self.worker_active = False
        if now >= self._due_at:
            self._due_at = now + UPKEEP_S
            self.parent_ended = self.supervisor.parent is not None and self.supervisor.parent_ended
            self._update_metrics(now)

    def note(self, effect: Counted | Done | Logged | Lost) -> None:
        """Count and log an event."""
        match effect:
            case Counted("first_picture", amount):
                self.metrics.first_picture_seconds.observe(amount)
            case Counted(what, amount):
                self.metrics.ahead[what].inc(amount)
            case Done(noun, session, turn, seconds, worker):
                if worker is not None:
                    self.metrics.worker_turns.labels(worker).inc()
                self.metrics.turns.inc()
                for stage in STAGES:
                    self.metrics.turn_seconds.labels(stage).observe(seconds.get(stage, 0.0))
                named = worker if len(self._workers.all) > 1 else None
                log.info("%s done (%s)", noun, _about(session, turn, seconds.get("total"), named))
            case Lost(noun, code, session, turn, worker):
                if worker is not None:
                    self.metrics.worker_failed_turns.labels(worker).inc()
                level, how = (logging.WARNING, "failed") if effect.is_failure else (logging.INFO, "ended")
                log.log(level, "%s %s: %s (%s)", noun, how, code, _about(session, turn))
            case Logged(level, text, error):
                log.log(level, "%s", text, exc_info=error)

    @property
    def _working(self) -> bool:
        """Whether turns succeed or may: not all fail, and none waits, all workers load, or one sent something."""
        fleet = self._core.dispatch.fleet
        active = self.worker_active or self._core.queue.idle or not fleet.serving
        return active and self._core.dispatch.state != "degraded"

    def _update_metrics(self, now: float) -> None:
        queue, dispatch, metrics = self._core.queue, self._core.dispatch, self.metrics
        metrics.ready.set(dispatch.ready)
        metrics.queue.set(len(queue.waiting))
        metrics.running.set(len(queue.running))
        metrics.sessions.set(len(queue.sessions_in_use(now)))
        metrics.connections.set(self._sockets.connections)
        for one in self._workers.all:
            metrics.worker_ready.labels(one.number).set(dispatch.works(one.number))
            metrics.worker_resident_bytes.labels(one.number).set((one.resident_mib or 0.0) * 2**20)


def _about(session: str, turn: int | None, seconds: float | None = None, worker: int | None = None) -> str:
    """What a line is about. seconds: a turn's duration; worker: which of several played it."""
    taken = None if seconds is None else round(seconds, 3)
    fields = {"session": session, "turn": turn, "seconds": taken, "worker": worker}
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)


def log_to_stderr() -> None:
    """Send this package's log to stderr: `12:00:01 INFO turn done (session 5f0c, turn 3, seconds 0.61)`."""
    handler = LinesWithoutWaiting(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger(__package__)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


def print_line(line: str) -> None:
    """Print a line. Whoever started the server may have closed its end of stdout: not a reason to stop."""
    try:
        print(line, flush=True)
    except (OSError, ValueError) as error:
        log.warning("stdout is closed (%s); could not print: %s", error, line)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # its buffered rest would fail again at exit


def _metrics_port(options: ServeOptions, port: int) -> int:
    """The port after the server's two unless another was set; any free one if theirs were too."""
    if options.metrics_port is not None:
        return options.metrics_port
    return port + 2 if options.port else 0
