"""The gateway's process. It exits when its server is gone, for whatever reason."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from animegamer_rt.serving.wire import CLIENT_LIMITS

from .app import make_app
from .settings import GatewaySettings

MAX_MESSAGE_BYTES = CLIENT_LIMITS.buffer_bytes + 2 * CLIENT_LIMITS.header_bytes
"""A longer WebSocket message closes the connection; one above the protocol's own limit gets `too_large`."""
REQUEST_S = 10.0
"""A connection that has not sent a whole request by then is closed."""
PING_S = 20.0


class ImpatientHttp(H11Protocol):
    """HTTP that closes connections without a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer."""
        super().connection_made(transport)
        self.loop.call_later(REQUEST_S, self._close_unasked)

    def _close_unasked(self) -> None:
        if self.cycle is None and self.transport.get_protocol() is self:
            self.transport.close()


def _end_with_server() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve until the server is gone."""
    settings = GatewaySettings.from_line(sys.stdin.buffer.readline())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_server, daemon=True).start()
    config = uvicorn.Config(
        make_app(settings),
        http=ImpatientHttp,
        ws="websockets-sansio",
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # pictures are compressed already
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    with socket.socket(fileno=settings.descriptor) as listening:
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
