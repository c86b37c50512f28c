"""The server's metrics (turns, seconds by stage, errors by code, bytes, restarts) and their page for Prometheus.

Knows numbers; nothing of turns or sockets of clients. The page is served on loopback only, from a thread that reads
counters and never waits for the server's loop.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server

from animegamer_rt.errors import PortInUseError, ServerError
from animegamer_rt.serving.wire import STAGES

REMEMBERED_TURNS = 100
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histogram's buckets: from a stage on a fast GPU to the longest turn that the default deadline
allows."""
AHEAD = {
    "ahead_offered": ("ahead_offered", "Turns played before they were asked for."),
    "ahead_used": ("ahead_used", "Of those, turns that were asked for."),
    "ahead_wasted": ("ahead_wasted_seconds", "Seconds of turns ahead that nobody asked for."),
}
"""What the core counts of turns played ahead -> the counter's name and meaning."""
HOST = "127.0.0.1"
PREFIX = "animegamer_"


class Metrics:
    """Counters of one run of the server. workers: how many it has."""

    def __init__(self, workers: int = 1) -> None:
        self.registry = CollectorRegistry()
        # The server process's own memory, processor time and files, where the system gives them (Linux).
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=self.registry)
        self._first_pictures: deque[float] = deque(maxlen=REMEMBERED_TURNS)
        self._turns = self._counter("turns", "Turns finished, replays of finished ones included.")
        self._turn_seconds = Histogram(
            PREFIX + "turn_seconds",
            "Seconds of a finished turn, by stage.",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._first_picture_seconds = Histogram(
            PREFIX + "first_picture_seconds",
            "Seconds from an instruction to its turn's first picture.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._first_picture_p95 = self._gauge(
            "first_picture_p95_seconds", "Seconds that 95 of the last 100 first pictures came within."
        )
        self._bytes = self._counter("bytes_sent", "Bytes handed to clients' sockets.")
        self._dropped = self._counter("frames_dropped", "Frames and clips not sent, as their client did not read.")
        self._ahead = {name: self._counter(*about) for name, about in AHEAD.items()}
        self._errors = Counter(PREFIX + "errors", "Errors sent to clients, by code.", ["code"], registry=self.registry)
        self._up = self._gauge("up", "1 while the server runs.")
        self._ready = self._gauge("ready", "1 while it takes turns.")
        self._queue = self._gauge("queue", "Turns that wait.")
        self._running = self._gauge("running", "Turns that run.")
        self._sessions = self._gauge("sessions", "Sessions used within the last hour.")
        self._connections = self._gauge("connections", "Players connected.")
        worker, registry = ["worker"], self.registry
        self._restarts = Counter(
            PREFIX + "worker_restarts",
            "Deaths of a worker after which it was started again.",
            worker,
            registry=registry,
        )
        self._worker_turns = Counter(PREFIX + "worker_turns", "Turns finished by a worker.", worker, registry=registry)
        self._worker_ready = Gauge(PREFIX + "worker_ready", "1 while a worker takes turns.", worker, registry=registry)
        self._worker_bytes = Gauge(
            PREFIX + "worker_resident_bytes", "Memory of a worker after its last turn.", worker, registry=registry
        )
        for number in range(1, workers + 1):
            self._restarts.labels(number)
            self._worker_turns.labels(number)
            self._worker_ready.labels(number)
            self._worker_bytes.labels(number)
        self._up.set(1)
        for stage in STAGES:
            self._turn_seconds.labels(stage)

    def turn_done(self, seconds: Mapping[str, float], worker: int | None = None) -> None:
        """A turn, or a replay of one, was finished; `seconds` by stage, with `queue`; worker: the one that played it.

        None: it had been played before it was asked for.
        """
        if worker is not None:
            self._worker_turns.labels(worker).inc()
        self._turns.inc()
        for stage in STAGES:
            self._turn_seconds.labels(stage).observe(seconds.get(stage, 0.0))

    def count(self, what: str, amount: float) -> None:
        """Add a figure of the core: `first_picture` (seconds after its instruction came) or one of AHEAD."""
        if what == "first_picture":
            self._first_pictures.append(amount)
            self._first_picture_seconds.observe(amount)
        else:
            self._ahead[what].inc(amount)

    def error(self, code: str) -> None:
        """An error was sent to a client."""
        self._errors.labels(code).inc()

    def worker_restarted(self, worker: int) -> None:
        """A worker died and will be started again."""
        self._restarts.labels(worker).inc()

    def sent(self, size: int) -> None:
        """So many bytes were handed to a client's socket."""
        self._bytes.inc(size)

    def frames_dropped(self, count: int) -> None:
        """So many frames were not sent, as their client did not read."""
        self._dropped.inc(count)

    def load(self, queue: int, running: int, sessions: int, connections: int) -> None:
        """How full the server is now; updated about once a second."""
        self._queue.set(queue)
        self._running.set(running)
        self._sessions.set(sessions)
        self._connections.set(connections)
        if self._first_pictures:
            ordered = sorted(self._first_pictures)
            self._first_picture_p95.set(ordered[math.ceil(0.95 * len(ordered)) - 1])

    def health(self, ready: bool, workers: Iterable[tuple[int, bool, float | None]]) -> None:
        """Whether turns are taken now; of each worker its number, whether it takes them, its MiB of memory if known.

        Updated with `load`.
        """
        self._ready.set(ready)
        for number, serving, resident_mib in workers:
            self._worker_ready.labels(number).set(serving)
            self._worker_bytes.labels(number).set((resident_mib or 0.0) * 2**20)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(PREFIX + name, about, registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(PREFIX + name, about, registry=self.registry)


@contextlib.contextmanager
def serve_metrics(metrics: Metrics, port: int) -> Iterator[str]:
    """Serve the metrics as Prometheus text inside a `with`; gives the page's address. Port 0 is any free port.

    Raises ServerError when the port cannot be bound.
    """
    try:
        server, thread = start_http_server(port, HOST, metrics.registry)
    except OSError as error:
        kind = PortInUseError if error.errno == errno.EADDRINUSE else ServerError
        raise kind(
            "the metrics' port cannot be bound",
            where=f"port {port}",
            found=error.strerror or str(error),
            do="choose another metrics_port in serve --config, or 0 for none",
        ) from error
    try:
        yield f"http://{HOST}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
