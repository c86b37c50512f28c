"""What may be at an address instead of a game server: a web server, a silent program, or one that sends garbage."""

from __future__ import annotations

import contextlib
import socket
import threading

from client.conformance.ports import ReservedPorts

MECHANISM_BYTES, FILLER_BYTES = 20, 32
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(MECHANISM_BYTES, b"\0") + bytes(FILLER_BYTES)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"
"""How a ROUTER starts a connection of ZMTP 3.1."""
MAGIC = b"\x01\x05AGRT\x01"
GREETINGS = {
    "web": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "silent": b"",
    "flags": b"\xf0",
    "command": b"\x06" + (64 << 20).to_bytes(8, "big"),
    "short": b"\x04\x00",
    "absurd": MAGIC + b"\x02" + (1 << 60).to_bytes(8, "big"),
    "picture": MAGIC + b"\x01\x0c\x81\xa4type\xa5frame" + b"\x02" + ((64 << 20) + 1).to_bytes(8, "big"),
    "version": b"\x01\x05AGRT\x02\x00\x01\x80",
}
"""The bytes that each program sends on connection, a ROUTER's after its greeting. Lengths are over the limit."""
PLAIN = ("web", "silent", "none")
READY_BYTES = 64 + 26
"""A client must have sent this much before it can receive messages: its greeting and its READY."""


class OtherProgram:
    """A program at two adjacent ports that sends its bytes once, then only reads. kind: of `GREETINGS`, or `none`."""

    def __init__(self, kind: str) -> None:
        self._says, self._is_router = GREETINGS.get(kind, b""), kind not in PLAIN
        self._ports = ReservedPorts()
        self.address = f"tcp://127.0.0.1:{self._ports.port}"
        self._listeners: list[socket.socket] = []
        self._taken: list[socket.socket] = []
        if kind == "none":
            return
        for port in (self._ports.port, self._ports.port + 1):
            listener = socket.create_server(("127.0.0.1", port))
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Free the ports."""
        for each in (*self._listeners, *self._taken):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._ports.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = listener.accept()
                self._taken.append(taken)
                threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._is_router:
                taken.sendall(GREETING + READY)
                received = 0
                while received < READY_BYTES:
                    data = taken.recv(4096)
                    if not data:
                        return
                    received += len(data)
            taken.sendall(self._says)
