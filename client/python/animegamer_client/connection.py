"""The ZeroMQ socket of one address and its monitor, driven by a `ProtocolState`. Nothing here waits."""

from __future__ import annotations

import contextlib
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from .calls import Call
from .codec import FROM_SERVER, encode
from .errors import ClientError, ServerRefused
from .options import Keys
from .protocol_state import Phase, ProtocolState

MAX_UNREAD = 64
"""Messages that ZeroMQ queues unread, about two clips; the server then holds back the rest."""
VANISHED_MS = 60_000
"""A connection whose other end has acknowledged nothing for this long is closed."""
MONITORED = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)


class Connection:
    """One address. Use it from one thread at a time."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], state: ProtocolState, keys: Keys | None) -> None:
        self.state = state
        self._context, self._keys = context, keys
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._handshake_done = False

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """The sockets to wait on; none while there is no connection."""
        return [socket for socket in (self._socket, self._monitor) if socket is not None]

    def start(self, call: Call[Any]) -> None:
        """Add a call and send its request, or what must be sent before it. Raises ProtocolError."""
        self.state.start(call)
        self.advance()

    def advance(self) -> bool:
        """Process one message or the monitor's events, check the clock, and connect and send as the state requests.

        Returns whether there was a message.
        """
        try:
            return self._advance()
        except BaseException:  # as KeyboardInterrupt, which may leave half a message: another connection has whole ones
            self.state.lost()
            self.close()
            raise

    def _advance(self) -> bool:
        received = self._receive()
        if not received:
            self._read_monitor()
        self.state.tick()
        if self.state.phase is Phase.DOWN:
            self.close()
        if self.state.wants_socket:
            self._open()
            self.state.opened()
        self.send()
        return received

    def send(self) -> None:
        """Send the pending messages."""
        for message in self.state.outgoing():
            if self._socket is None:
                continue
            try:
                self._socket.send_multipart(encode(message), zmq.DONTWAIT)
            except zmq.Again:
                self.state.lost("the server accepts no more messages")

    def close(self) -> None:
        """Close the sockets; unsent messages are dropped."""
        if self._socket is not None:
            self._socket.disable_monitor()
        for socket in self.sockets:
            socket.close(linger=0)
        self._socket = self._monitor = None

    def discard(self) -> None:
        """Close the sockets for good."""
        self.close()

    def _open(self) -> None:
        self.close()
        self._handshake_done = False
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.rcvhwm = MAX_UNREAD
        socket.maxmsgsize = max(FROM_SERVER.buffer_bytes, FROM_SERVER.header_bytes)
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2000
        socket.ipv6 = "[" in self.state.address  # with ipv6 set, names such as localhost resolve to IPv6 only
        socket.tcp_keepalive, socket.tcp_maxrt = 1, VANISHED_MS
        if self._keys is not None:
            socket.curve_serverkey = self._keys.server
            socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
        self._socket, self._monitor = socket, socket.get_monitor_socket(MONITORED)
        self._monitor.linger = 0
        try:
            socket.connect(self.state.address)
        except zmq.ZMQError as error:
            self.close()
            self.state.fail(
                ClientError(f"cannot connect to {self.state.address}: {error}", "check the server's address")
            )

    def _receive(self) -> bool:
        if self._socket is None:
            return False
        try:
            frames = self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return False
        self.state.received([frame.buffer for frame in frames])
        return True

    def _read_monitor(self) -> None:
        while self._monitor is not None and self.state.phase is not Phase.DOWN:
            try:
                message = recv_monitor_message(self._monitor, zmq.DONTWAIT)
            except zmq.Again:
                return
            self._process_monitor_event(message["event"])

    def _process_monitor_event(self, event: int) -> None:
        if event == zmq.EVENT_DISCONNECTED:
            self.state.lost("the connection was lost" if self._handshake_done else None)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._handshake_done = True
        elif event == zmq.EVENT_CONNECTED:
            if not self.state.answered:
                self.state.note("a program there accepts connections, but does not respond like a game server")
        elif event == zmq.EVENT_CONNECT_RETRIED:
            self.state.note("nothing listens there")
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.state.fail(
                ServerRefused(
                    "not_allowed",
                    f"{self.state.address} does not know this client's key",
                    "ask its owner to add your public key to the server's allow-list",
                )
            )
        else:
            reason = "the keys may be wrong" if self._keys else "it may need keys: give server_key and client_keys"
            self.state.note(f"a program there accepts connections, but the ZeroMQ handshake failed; {reason}")


def close_all(context: zmq.Context[zmq.Socket[bytes]], *connections: Connection) -> None:
    """Close all sockets and the context without waiting."""
    for connection in connections:
        connection.discard()
    with contextlib.suppress(zmq.ZMQError):
        context.destroy(linger=0)
