"""Ports for servers of tests. They stay reserved while a server is down, although other tests look for ports meanwhile.

The ports come in blocks of four. Who has bound a block's first port may use the three after it; nothing ever listens
at the first one, so it can stay bound while the server comes and goes. This holds between processes, too.
"""

from __future__ import annotations

import random
import socket
from types import TracebackType

BLOCKS = range(32_004, 32_768, 4)
"""Above the ports that `serve --port 0` chooses from, below those that systems give to outgoing connections."""


class ReservedPorts:
    """Three ports of 127.0.0.1 in a row, nobody else's until `close` or the end of `with`.

    port: the first of them, for turns; the next ones are for control and metrics. Raises OSError if all are taken.
    """

    def __init__(self) -> None:
        for block in random.sample(BLOCKS, len(BLOCKS)):
            self._reserved, self.port = socket.socket(), block + 1
            try:
                self._reserved.bind(("127.0.0.1", block))
                for port in range(self.port, block + 4):
                    socket.create_server(("127.0.0.1", port)).close()  # no program that knows no blocks is there
                return
            except OSError:
                self._reserved.close()
        raise OSError(f"no free ports from {BLOCKS.start} to {BLOCKS.stop - 1}")

    @property
    def option(self) -> tuple[str, str]:
        """As `animegamer-rt serve` and `route` take them."""
        return "--port", str(self.port)

    def close(self) -> None:
        """Let others have them."""
        self._reserved.close()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
