"""Two TCP relays in front of a server, whose connections a test can cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

from client.conformance.ports import ReservedPorts


class WireCutter:
    """Relays two adjacent ports to those of a server at tcp://127.0.0.1:PORT."""

    def __init__(self, address: str) -> None:
        self._to = int(address.rsplit(":", 1)[1])
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
        self.cut()
        for thread in self._threads:
            thread.join(10)
        self._ports.close()

    def cut(self) -> None:
        """Close every connection, in both directions; new ones are accepted."""
        with self._lock:
            for wire in self._wires:
                with contextlib.suppress(OSError):
                    wire.shutdown(socket.SHUT_RDWR)
            self._wires.clear()

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
            self._run(self._relay, near, far, ends)
            self._run(self._relay, far, near, ends)

    def _relay(self, source: socket.socket, sink: socket.socket, ends: threading.Barrier) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        ends.wait(10)
        source.close()

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
