"""The gateway's own metrics: WebSockets, messages and bytes. Turns and errors are the server's (`metrics_port`)."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

__all__ = ["CONTENT_TYPE", "GatewayMetrics"]

PREFIX = "animegamer_gateway"


class GatewayMetrics:
    """connections: open WebSockets. refused: those not accepted. received: messages; unreadable: invalid ones.

    wrong_passwords: those tried; attempts beyond the limit are not.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(namespace=PREFIX, registry=self._registry)
        self.connections = Gauge(f"{PREFIX}_connections", "Open WebSockets.", registry=self._registry)
        self.refused = self._counter("refused", "WebSockets refused.")
        self.wrong_passwords = self._counter("wrong_passwords", "Wrong passwords tried.")
        self.received = self._counter("messages_received", "Messages from browsers.")
        self.unreadable = self._counter("messages_unreadable", "Invalid messages from browsers.")
        self._sent = self._counter("messages_sent", "Messages to browsers.")
        self._bytes = self._counter("bytes_sent", "Bytes of messages to browsers (characters for text).")

    def sent(self, size: int) -> None:
        """Count a sent message of this size."""
        self._sent.inc()
        self._bytes.inc(size)

    def page(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", about, registry=self._registry)
