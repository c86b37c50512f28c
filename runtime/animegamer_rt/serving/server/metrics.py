"""The server's metrics (turns, seconds by stage, errors by code, bytes, restarts) and their page for Prometheus.

The page is served on loopback only, from threads that read counters and never wait for the server's loop.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from animegamer_rt.errors import PortInUseError, ServerError
from animegamer_rt.serving.wire.schema import STAGES
from animegamer_rt.untrusted import host_name, is_address

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histogram's buckets: from a stage on a fast GPU to the default deadline of a turn."""
HOST = "127.0.0.1"
PAGE_CONNECTIONS, PAGE_S = 8, 10.0
"""Connections to the page at once, the oldest of which gives way; how long each may last."""
PREFIX = "animegamer_"


class Metrics:
    """The metrics of one run of the server. workers: how many it has."""

    def __init__(self, workers: int = 1) -> None:
        self.registry = registry = CollectorRegistry()
        # The server process's own memory, CPU time and open files, where the system reports them (Linux).
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=registry)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(PREFIX + name, about, labels, registry=registry)

        def gauge(name: str, about: str, *labels: str) -> Gauge:
            return Gauge(PREFIX + name, about, labels, registry=registry)

        def histogram(name: str, about: str, *labels: str) -> Histogram:
            return Histogram(PREFIX + name, about, labels, buckets=SECONDS, registry=registry)

        self.turns = counter("turns", "Turns finished, including replays.")
        self.bytes_sent = counter("bytes_sent", "Bytes passed to clients' sockets.")
        self.frames_dropped = counter("frames_dropped", "Frames and clips dropped because their client did not read.")
        about = "Connections without a job that were closed to make room for another client's."
        self.connections_closed = counter("connections_closed", about)
        self.ahead = {
            "ahead_offered": counter("ahead_offered", "Speculative turns rendered."),
            "ahead_used": counter("ahead_used", "Speculative turns used."),
            "ahead_wasted_seconds": counter("ahead_wasted_seconds", "Seconds spent on unused speculative turns."),
        }
        """By the names that `effects.Counted` has."""
        self.errors = counter("errors", "Errors sent to clients, by code.", "code")

        gauge("up", "1 while the server runs.").set(1)
        about = "while a worker plays turns: not while none is loaded, nor after the last turns of all of them failed."
        self.ready = gauge("ready", f"1 {about}")
        self.queue, self.running = gauge("queue", "Turns waiting."), gauge("running", "Turns running.")
        self.sessions = gauge("sessions", "Sessions used within the last hour.")
        self.connections = gauge("connections", "Players connected.")

        self.worker_restarts = counter("worker_restarts", "Restarts of a worker after it died.", "worker")
        self.worker_turns = counter("worker_turns", "Turns finished by a worker.", "worker")
        about = "Turns that failed by a fault of a worker, not of their instruction."
        self.worker_failed_turns = counter("worker_failed_turns", about, "worker")
        about = "1 while a worker plays turns: not while it loads, nor after its last turns failed."
        self.worker_ready = gauge("worker_ready", about, "worker")
        about = "Resident memory of a worker after its last turn."
        self.worker_resident_bytes = gauge("worker_resident_bytes", about, "worker")

        self.turn_seconds = histogram("turn_seconds", "Seconds of a finished turn, by stage.", "stage")
        about = "Time to first frame of a turn, in seconds."
        self.first_picture_seconds = histogram("first_picture_seconds", about)

        of_workers = (self.worker_restarts, self.worker_turns, self.worker_failed_turns)
        for number in range(1, workers + 1):
            for metric in (*of_workers, self.worker_ready, self.worker_resident_bytes):
                metric.labels(number)
        for stage in STAGES:
            self.turn_seconds.labels(stage)


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
