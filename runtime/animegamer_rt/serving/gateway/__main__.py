"""The gateway's process. It exits when its server is gone, for whatever reason."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading

from animegamer_rt.serving.log_lines import LinesWithoutWaiting
from animegamer_rt.serving.wire.codec import CLIENT_LIMITS

from .app import make_app
from .http_server import HttpServer
from .settings import GatewaySettings

MAX_MESSAGE_BYTES = CLIENT_LIMITS.buffer_bytes + 2 * CLIENT_LIMITS.header_bytes
"""A longer WebSocket message closes the connection; one above the protocol's own limit gets `too_large`."""
PING_S = 20.0


def _end_with_server() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


class GatewayServer(HttpServer):
    """Writes a byte to standard output each second: the server replaces a gateway that does not."""

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second by the event loop."""
        if counter % 10 == 0:
            with contextlib.suppress(OSError):  # the server is gone, or does not read
                os.write(sys.stdout.fileno(), b".")
        return await super().on_tick(counter)


def main() -> None:
    """Serve until the server is gone."""
    settings = GatewaySettings.from_line(sys.stdin.buffer.readline())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_server, daemon=True).start()
    lines = LinesWithoutWaiting(sys.stderr)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s gateway: %(message)s", handlers=[lines])
    if sys.platform != "win32":  # the server refuses --web there
        os.set_blocking(sys.stdout.fileno(), False)
    server = GatewayServer(
        make_app(settings),
        settings.trusted_proxies,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # pictures are compressed already
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
    )
    with socket.socket(fileno=settings.descriptor) as listening:
        server.run([listening])


if __name__ == "__main__":
    main()
