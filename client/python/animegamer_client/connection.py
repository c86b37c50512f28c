"""One address kept busy: a socket, its monitor, and the link that says what to do with them. Nothing here waits.

Knows ZeroMQ; whoever waits, on a poller or in an event loop, calls `advance` before and after.
"""

from __future__ import annotations

import contextlib

import zmq
from zmq.utils.monitor import recv_monitor_message

from .codec import FROM_SERVER, encode
from .errors import ServerRefused
from .link import Link, Phase
from .options import Keys

MOST_WAITING = 64
"""Messages that may wait unread, near two clips: beyond it the server holds back."""
WATCHED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)


class Connection:
    """The link's hands. Use from one thread at a time."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], link: Link, keys: Keys | None) -> None:
        self.link = link
        self._context, self._keys = context, keys
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._met = False

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """What to wait on; none while there is no connection."""
        return [socket for socket in (self._socket, self._monitor) if socket is not None]

    def advance(self) -> bool:
        """Take in one message, or what the monitor saw; look at the clock; connect and send as the link wants.

        Returns whether there was a message.
        """
        received = self._receive()
        if not received:
            self._look()
        self.link.tick()
        if self.link.phase is Phase.DOWN:
            self.close()
        if self.link.wants_socket:
            self._open()
            self.link.opened()
        self.send()
        return received

    def send(self) -> None:
        """Send what waits."""
        for message in self.link.outgoing():
            if self._socket is None:
                continue
            try:
                self._socket.send_multipart(encode(message), zmq.DONTWAIT)
            except zmq.Again:
                self.link.lost("the server takes no more messages")

    def close(self) -> None:
        """Drop the sockets, and what was not sent."""
        if self._socket is not None:
            self._socket.disable_monitor()
        for socket in self.sockets:
            socket.close(linger=0)
        self._socket = self._monitor = None

    def _open(self) -> None:
        self.close()
        self._met = False
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.rcvhwm = MOST_WAITING
        socket.maxmsgsize = max(FROM_SERVER.buffer_bytes, FROM_SERVER.header_bytes)
        socket.reconnect_ivl, socket.reconnect_ivl_max = 100, 2000
        socket.ipv6 = "[" in self.link.address  # a name such as localhost would be looked up as IPv6 only
        socket.tcp_keepalive = 1
        if self._keys is not None:
            socket.curve_serverkey = self._keys.server
            socket.curve_publickey, socket.curve_secretkey = self._keys.public, self._keys.secret
        self._socket, self._monitor = socket, socket.get_monitor_socket(WATCHED)
        self._monitor.linger = 0
        socket.connect(self.link.address)

    def _receive(self) -> bool:
        if self._socket is None:
            return False
        try:
            frames = self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return False
        self.link.received([frame.buffer for frame in frames])
        return True

    def _look(self) -> None:
        """What the monitor saw of the connection."""
        while self._monitor is not None and self.link.phase is not Phase.DOWN:
            try:
                seen = recv_monitor_message(self._monitor, zmq.DONTWAIT)
            except zmq.Again:
                return
            self._saw(seen["event"])

    def _saw(self, event: int) -> None:
        if event == zmq.EVENT_DISCONNECTED:
            self.link.lost("the connection was lost" if self._met else None)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._met = True
            if not self.link.answered:
                self.link.noticed("something is there, but it does not answer as a server of this protocol does")
        elif event == zmq.EVENT_CONNECT_RETRIED:
            self.link.noticed("nothing listens there")
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.link.fail(
                ServerRefused(
                    "not_allowed",
                    f"{self.link.address} does not know this client's key",
                    "ask its owner to add your public key to the server's allow-list",
                )
            )
        else:
            ours = "our keys do not fit it" if self._keys else "it may ask for keys: give server_key and client_keys"
            self.link.noticed(f"something is there, but the first handshake failed; {ours}")


def shut(context: zmq.Context[zmq.Socket[bytes]], *connections: Connection) -> None:
    """Close everything without waiting for anybody."""
    for connection in connections:
        connection.close()
    with contextlib.suppress(zmq.ZMQError):
        context.destroy(linger=0)
