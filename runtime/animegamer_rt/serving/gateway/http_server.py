"""HTTP in which nobody takes more than his share: uvicorn, with limits of time and number, and a log that stays small.

uvicorn bounds a header's size and the pause between two requests, but neither the time that a request takes to arrive
nor the number of open connections. The oldest connection gives way to a new one, so a crowd of silent ones shuts
nobody out.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import math
import socket
import time
from collections.abc import Sequence
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from animegamer_rt.serving.shares import FullError, Share

REQUEST_S, ANSWER_S, CLOSE_S = 10.0, 60.0, 10.0
"""How long a request may take to arrive whole, its answer to be fetched, and a WebSocket to close."""
HEADER_BYTES = 16 * 1024
CONNECTIONS, BACKLOG = 128, 128
"""HTTP connections open at once, without WebSockets; those accepted in one go, before any is closed."""
UNFINISHED_BYTES = 64 * 2**20
"""Of all WebSocket messages that have not arrived whole: seven of the largest pictures."""
READ_BYTES, MOST_READ_BYTES = 1024, 32 * 1024
"""Read at once of a connection, since thousands of tiny chunks or frames would hold everybody up; of a long frame."""
FRAME_BYTES = 64
"""Counted for each frame of an unfinished message besides its own bytes."""
LOG_S = 60.0
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("animegamer_rt.serving.gateway")


class OncePerMinute(logging.Filter):
    """Lets each place in the code write a line a minute, which says how many were left out since the last."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        place, now = (record.pathname, record.lineno), time.monotonic()
        written_at, left_out = self._written.get(place, (-LOG_S, 0))
        if now - written_at < LOG_S:
            self._written[place] = written_at, left_out + 1
            return False
        self._written[place] = now, 0
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more since the last such line)", ()
        return True


_once_per_minute = OncePerMinute()


def peer_of(address: tuple[str, int] | None) -> str:
    """Who shares a share: an IPv4 address or an IPv6 network of 64 bits; empty on loopback, where all look alike."""
    if address is None:
        return ""
    try:
        ip = ipaddress.ip_address(address[0].partition("%")[0])
    except ValueError:  # a trusted proxy passed on what is no address
        return ""
    if ip.version == 6:
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return ""
    return str(ip if ip.version == 4 else ipaddress.IPv6Network((int(ip), 64), strict=False).network_address)


def _connected_from(connection: H11Protocol | WebSocketsSansIOProtocol) -> str:
    """The same of a connection; empty for a trusted proxy's, which is shared by many."""
    trusted: Any = connection.app  # uvicorn's ProxyHeadersMiddleware
    proxied = connection.client is not None and connection.client[0] in trusted.trusted_hosts
    return "" if proxied else peer_of(connection.client)


class Waiting(asyncio.Protocol):
    """A connection that is closed when it takes too long, or is the one that waits longest of too many."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    since = math.inf
    """Since when it waits for a request or its answer; infinite for a WebSocket that a visitor has."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        transport.max_size = READ_BYTES
        super().connection_made(transport)
        self.wait(REQUEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free it now, not when its time would be over."""
        self.wait(None)
        super().connection_lost(exc)

    def wait(self, seconds: float | None) -> None:
        """Close the connection after so long, instead of what was to be; None: never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
        self.since = math.inf if seconds is None else self.loop.time()


class LimitedHttp(Waiting, H11Protocol):
    """An HTTP connection. The oldest of its address, or of all, gives way if there are too many."""

    _answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the oldest connection of this address or of all if there are too many."""
        super().connection_made(transport)
        peer = _connected_from(self)
        everyone = waiting_connections(self.server_state)
        mine = [one for one in everyone if peer and _connected_from(one) == peer]
        if len(mine) > CONNECTIONS // 4:
            mine[0].transport.abort()
        elif len(everyone) > CONNECTIONS:
            everyone[0].transport.abort()

    def data_received(self, data: bytes) -> None:
        """Allow time for the answer once the request has arrived."""
        super().data_received(data)
        if not (self._answering or self.cycle is None or self.cycle.more_body or self.cycle.response_complete):
            self._answering = True
            self.wait(ANSWER_S)

    def on_response_complete(self) -> None:
        """Allow time for the next request."""
        super().on_response_complete()
        self._answering = False
        self.wait(REQUEST_S)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """The WebSocket has a clock of its own."""
        self.wait(None)
        super().handle_websocket_upgrade(event)


class LimitedWebSocket(Waiting, WebSocketsSansIOProtocol):
    """A WebSocket. It is bounded as an HTTP connection until its handshake is over, and again while it closes.

    Messages that have not arrived whole share UNFINISHED_BYTES; whoever has the most is closed.
    """

    unfinished = Share["LimitedWebSocket"](UNFINISHED_BYTES)
    unfinished_bytes = 0
    _late_pong: list[bytes] = []

    def start_keepalive(self) -> None:
        """The handshake is over; `Visitors` bounds it now."""
        super().start_keepalive()
        self.wait(None)

    def data_received(self, data: bytes) -> None:
        """Make room for a part of a long message."""
        self.unfinished_bytes += len(data)
        super().data_received(data)
        buffered = len(self.conn.reader.buffer)
        self.transport.max_size = min(max(READ_BYTES, buffered), MOST_READ_BYTES)
        self.unfinished.drop(self)
        size = self.unfinished_bytes + FRAME_BYTES * len(self.frames)
        if size < HEADER_BYTES:
            return
        holder = _connected_from(self) or self
        try:
            while (most := self.unfinished.giver(holder, size)) is not None:
                most.discard()
            self.unfinished.set(self, holder, size)
        except FullError:
            self.discard()

    def discard(self) -> None:
        """Close, and free what has arrived now: in reference cycles it would stay until the collector runs."""
        self.unfinished.drop(self)
        self.transport.abort()
        self.conn.reader.discard()
        self.frames.clear()

    def send_receive_event_to_app(self) -> None:
        """A message has arrived whole."""
        self.unfinished_bytes = 0
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free its part."""
        self.discard()
        super().connection_lost(exc)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Wait a little for the browser's own close, and for its reading."""
        super().on_task_complete(task)
        if not self.disconnected:
            self.wait(CLOSE_S)

    def handle_ping(self) -> None:
        """Answer; while the browser does not read, keep only the last answer (RFC 6455, 5.5.3)."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._late_pong = [*self._late_pong, *self.conn.data_to_send()][-1:]

    def resume_writing(self) -> None:
        """The browser reads again."""
        super().resume_writing()
        self.transport.write(b"".join(self._late_pong))
        self._late_pong = []


def waiting_connections(state: uvicorn.server.ServerState) -> list[LimitedHttp | LimitedWebSocket]:
    """The open connections that wait for a request or an answer, longest waiting first."""
    every: Any = (one for one in state.connections if not one.transport.is_closing())
    return sorted((one for one in every if one.since < math.inf), key=lambda one: one.since)


class HttpServer(uvicorn.Server):
    """Serves an application: `run([listening socket])` returns when `should_exit` is set.

    trusted_proxies: whose `X-Forwarded-For` gives the address of a request. options: of uvicorn.Config.
    """

    def __init__(self, app: ASGIApp, trusted_proxies: Sequence[str] = (), **options: Any) -> None:
        for name in ("uvicorn.error", "asyncio", log.name):
            logging.getLogger(name).addFilter(_once_per_minute)
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=LimitedHttp,
            ws=LimitedWebSocket,
            h11_max_incomplete_event_size=HEADER_BYTES,
            backlog=BACKLOG,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=True,
            forwarded_allow_ips=list(trusted_proxies),
            timeout_graceful_shutdown=1,
            **options,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer a lack of descriptors by closing connections."""
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        await super().startup(sockets)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "socket" not in context or not isinstance(error, OSError) or error.errno not in FULL:
            loop.default_exception_handler(context)
            return
        log.error("a connection cannot be accepted: %s; closing the oldest", error.strerror)
        for oldest in waiting_connections(self.server_state)[:1]:
            oldest.transport.abort()
