"""The server's metrics (turns, seconds by stage, errors by code, bytes, restarts) and their page for Prometheus.

The page is served on loopback only, from threads that read counters and never wait for the server's loop.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from animegamer_rt.errors import PortInUseError, ServerError
from animegamer_rt.serving.wire import STAGES
from animegamer_rt.untrusted import host_name, is_address

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histogram's buckets: from a stage on a fast GPU to the default deadline of a turn."""
HOST = "127.0.0.1"
PAGE_CONNECTIONS, PAGE_S = 8, 10.0
"""Connections to the page at once, the oldest of which gives way; how long each may last."""
PREFIX = "animegamer_"
COUNTERS = {
    "turns": "Turns finished, including replays.",
    "bytes_sent": "Bytes passed to clients' sockets.",
    "frames_dropped": "Frames and clips dropped because their client did not read.",
    "connections_closed": "Connections without a job that were closed to make room for another client's.",
    "ahead_offered": "Speculative turns rendered.",
    "ahead_used": "Speculative turns used.",
    "ahead_wasted_seconds": "Seconds spent on unused speculative turns.",
}
GAUGES = {
    "up": "1 while the server runs.",
    "ready": "1 while a worker plays turns: not while none is loaded, nor after the last turns of all of them failed.",
    "queue": "Turns waiting.",
    "running": "Turns running.",
    "sessions": "Sessions used within the last hour.",
    "connections": "Players connected.",
}
WORKER_COUNTERS = {
    "worker_restarts": "Restarts of a worker after it died.",
    "worker_turns": "Turns finished by a worker.",
    "worker_failed_turns": "Turns that failed by a fault of a worker, not of their instruction.",
}
WORKER_GAUGES = {
    "worker_ready": "1 while a worker plays turns: not while it loads, nor after its last turns failed.",
    "worker_resident_bytes": "Resident memory of a worker after its last turn.",
}


class Metrics:
    """Counters of one run of the server. workers: how many it has."""

    def __init__(self, workers: int = 1) -> None:
        self.registry = registry = CollectorRegistry()
        # The server process's own memory, CPU time and open files, where the system reports them (Linux).
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=registry)
        self._counters = {name: Counter(PREFIX + name, about, registry=registry) for name, about in COUNTERS.items()}
        self._gauges = {name: Gauge(PREFIX + name, about, registry=registry) for name, about in GAUGES.items()}
        about, worker = WORKER_COUNTERS, ["worker"]
        self._worker_counters = {name: Counter(PREFIX + name, about[name], worker, registry=registry) for name in about}
        about = WORKER_GAUGES
        self._worker_gauges = {name: Gauge(PREFIX + name, about[name], worker, registry=registry) for name in about}
        self._errors = Counter(PREFIX + "errors", "Errors sent to clients, by code.", ["code"], registry=registry)
        text = "Seconds of a finished turn, by stage."
        self._turn_seconds = Histogram(PREFIX + "turn_seconds", text, ["stage"], buckets=SECONDS, registry=registry)
        text, name = "Time to first frame of a turn, in seconds.", PREFIX + "first_picture_seconds"
        self._first_picture_seconds = Histogram(name, text, buckets=SECONDS, registry=registry)
        for number in range(1, workers + 1):
            for metric in (*self._worker_counters.values(), *self._worker_gauges.values()):
                metric.labels(number)
        for stage in STAGES:
            self._turn_seconds.labels(stage)
        self._gauges["up"].set(1)

    def count(self, name: str, amount: float = 1.0) -> None:
        """Add to one of COUNTERS, or record `first_picture`: a time to first frame, in seconds."""
        if name == "first_picture":
            self._first_picture_seconds.observe(amount)
        else:
            self._counters[name].inc(amount)

    def count_of_worker(self, name: str, worker: int) -> None:
        """Add one to one of WORKER_COUNTERS."""
        self._worker_counters[name].labels(worker).inc()

    def turn_done(self, seconds: Mapping[str, float], worker: int | None = None) -> None:
        """Record a finished turn or replay. seconds: by stage, with `queue`. worker: its player; None: speculative."""
        if worker is not None:
            self.count_of_worker("worker_turns", worker)
        self.count("turns")
        for stage in STAGES:
            self._turn_seconds.labels(stage).observe(seconds.get(stage, 0.0))

    def error(self, code: str) -> None:
        """Record an error sent to a client."""
        self._errors.labels(code).inc()

    def update(self, workers: Iterable[tuple[int, bool, float | None]], **gauges: float) -> None:
        """Set the gauges; called about once a second. gauges: values of GAUGES.

        workers: number, whether it plays turns, and MiB of memory if known, for each.
        """
        for name, value in gauges.items():
            self._gauges[name].set(value)
        for number, works, resident_mib in workers:
            self._worker_gauges["worker_ready"].labels(number).set(works)
            self._worker_gauges["worker_resident_bytes"].labels(number).set((resident_mib or 0.0) * 2**20)


class _PageServer(ThreadingWSGIServer):
    """A thread for each of a few connections, none of which lasts long."""

    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; the oldest gives way if there are too many."""
        with self._lock:
            if len(self._open) >= PAGE_CONNECTIONS:
                self._end(next(iter(self._open)))
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that last too long. Called twice a second."""
        with self._lock:
            for request, since in list(self._open.items()):
                if time.monotonic() - since > PAGE_S:
                    self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a visitor that leaves."""

    def _end(self, request: socket.socket) -> None:
        self._open.pop(request)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Log no request."""


def _page(metrics: Metrics) -> Callable[..., Iterable[bytes]]:
    """The page, at its own path only, and for no foreign name that a browser was told to find here."""
    figures: Callable[..., Iterable[bytes]] = make_wsgi_app(metrics.registry)

    def page(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        host = host_name(request.get("HTTP_HOST", ""))
        if not (host == "localhost" or is_address(host)):
            start("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [b"open this page by its address\n"]
        if request["PATH_INFO"] != "/metrics":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"the metrics are at /metrics\n"]
        return figures(request, start)

    return page


@contextlib.contextmanager
def serve_metrics(metrics: Metrics, port: int) -> Iterator[str]:
    """Serve the metrics as Prometheus text inside a `with`; yields the page's address. Port 0 is any free port.

    Raises ServerError if the port cannot be bound.
    """
    try:
        server = make_server(HOST, port, _page(metrics), _PageServer, _Handler)
    except OSError as error:
        kind = PortInUseError if error.errno == errno.EADDRINUSE else ServerError
        raise kind(
            "the metrics' port cannot be bound",
            where=f"port {port}",
            found=error.strerror or str(error),
            do="set another metrics_port in serve --config, or 0 for none",
        ) from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
