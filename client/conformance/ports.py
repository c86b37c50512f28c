"""Ports for test servers, which stay reserved while a server is down and other tests look for ports.

Ports come in blocks of four. Whoever has bound a block's first port may use the three after it; nothing listens at the
first one, so it can stay bound while servers come and go. This works across processes.
"""

from __future__ import annotations

import random
import socket
from types import TracebackType

BLOCKS = range(32_004, 32_768, 4)
"""Above the ports that `serve --port 0` chooses from, below those that systems assign to outgoing connections."""


class ReservedPorts:
    """Three consecutive ports of 127.0.0.1, reserved until `close` or the end of `with`.

    port: the first one, for turns; the next ones are for control and metrics. Raises OSError if all are taken.
    """

    def __init__(self) -> None:
        for block in random.sample(BLOCKS, len(BLOCKS)):
            self._reserved, self.port = socket.socket(), block + 1
            try:
                self._reserved.bind(("127.0.0.1", block))
                for port in range(self.port, block + 4):
                    socket.create_server(("127.0.0.1", port)).close()  # nothing that ignores the blocks is there
                return
            except OSError:
                self._reserved.close()
        raise OSError(f"no free ports from {BLOCKS.start} to {BLOCKS.stop - 1}")

    @property
    def option(self) -> tuple[str, str]:
        """As options of `animegamer-rt serve`."""
        return "--port", str(self.port)

    def close(self) -> None:
        """Free them."""
        self._reserved.close()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
