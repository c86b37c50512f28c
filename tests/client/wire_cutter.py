"""Two TCP relays in front of a server, whose connections a test can cut, slow down and change."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType

from client.conformance.ports import ReservedPorts


class WireCutter:
    """Relays two adjacent ports to those of a server at tcp://127.0.0.1:PORT.

    Of what the server sends on the first connection to the first port: cut_after: bytes, then the connection is closed;
    change: a byte's place and its new value. On all connections, drip: bytes at a time, 1 ms apart.
    """

    def __init__(
        self,
        address: str,
        *,
        cut_after: int | None = None,
        change: tuple[int, int] | None = None,
        drip: int | None = None,
    ) -> None:
        self._to = int(address.rsplit(":", 1)[1])
        self._cut_after, self._change, self._drip = cut_after, change, drip
        self.passed = 0
        """Bytes that the server has sent on the first connection to its first port."""
        self._first = True
        self._wires: list[socket.socket] = []
        self._lock = threading.Lock()
        self._ports = ReservedPorts()
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"tcp://127.0.0.1:{self._ports.port}"

    def __enter__(self) -> WireCutter:
        for offset in range(2):
            self._listeners.append(socket.create_server(("127.0.0.1", self._ports.port + offset)))
            self._run(self._accept, self._listeners[-1], offset)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            for wire in self._wires:
                with contextlib.suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._ports.close()

    def _accept(self, listener: socket.socket, offset: int) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to + offset))
            with self._lock:
                self._wires += [near, far]
            ends = threading.Barrier(2)
            first, self._first = self._first and offset == 0, self._first and offset != 0
            self._run(self._relay, near, far, ends, False)
            self._run(self._relay, far, near, ends, first)

    def _relay(self, source: socket.socket, sink: socket.socket, ends: threading.Barrier, faulty: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(self._drip or 65536):
                if self._drip:
                    time.sleep(0.001)
                if faulty:
                    data = self._faulty(data)
                sink.sendall(data)
                if faulty and self.passed == self._cut_after:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        ends.wait(10)
        source.close()

    def _faulty(self, data: bytes) -> bytes:
        """The next bytes of the first connection, changed and cut."""
        if self._cut_after is not None:
            data = data[: self._cut_after - self.passed]
        if self._change is not None and 0 <= self._change[0] - self.passed < len(data):
            at = self._change[0] - self.passed
            data = data[:at] + bytes([self._change[1]]) + data[at + 1 :]
        self.passed += len(data)
        return data

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
