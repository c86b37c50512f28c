"""The server's sockets: turns, control, one per worker, and the one that authenticates keys.

Without keys it serves loopback addresses only; any other address needs CURVE and a list of authorized keys. The ZAP
handler is one more socket of the same loop: pyzmq's own needs a thread with an event loop that Windows does not have.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import random
import secrets
import socket as tcp
import struct
import sys
import time
from dataclasses import replace
from typing import NamedTuple

import zmq
from zmq.utils import z85

from animegamer_rt.errors import PortInUseError, ServerError
from animegamer_rt.serving.wire.codec import CLIENT_LIMITS, WORKER_LIMITS
from animegamer_rt.untrusted import bare_host, bracketed

from .curve_keys import load
from .descriptors import MAX_DESCRIPTORS, PER_WORKER, RESERVED
from .options import ServeOptions

HIGH_WATER_MESSAGES = 4
"""Messages that libzmq queues per client, in each direction, and no byte bound counts. More wait in its `Client`."""
SOCKET_BYTES = 2**20
"""The kernel's buffers per client, in each direction. libzmq queues as many frames as fit into one of them: those that
wait in a `Client` are late, as the server tries again every millisecond only."""
MOST_FRAMES = 20
"""A clip has 17."""
MAX_FRAME_BYTES = CLIENT_LIMITS.buffer_bytes + 2 * CLIENT_LIMITS.header_bytes
"""libzmq disconnects a client that announces a larger frame, without allocating it. Smaller ones get `too_large`."""
UNFINISHED_BYTES, COUNT_S = 64 * 2**20, 0.1
"""Of all messages that have not arrived whole, since libzmq bounds no number of frames; how often they are counted."""
LINGER_MS = 2000
ON_THIS_MACHINE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard address -> the one at which programs on this machine connect."""
WORKERS = b"workers"
"""ZAP domain of the workers' sockets: knowing their key is enough."""
WORKER_BEAT_MS, WORKER_GONE_MS = 5000, 30_000
"""Heartbeat of a worker on another machine, and the silence after which it counts as lost."""
HANDSHAKE_MS = 5000
"""A connection that has not finished its handshake by then is closed."""
VANISHED_MS = 60_000
"""A connection whose client acknowledges nothing for this long while data is in flight is closed. Keep-alive does not
cover that: it probes only idle connections."""
ACCEPTED_PER_CONNECTION = 4
"""Connections accepted per allowed client: its two, and as many again that are about to be refused."""
VISITOR_NONCE = 16
_RECEIVED_AT = 128
"""Of tcpi_bytes_received in Linux's struct tcp_info, in bytes."""
_FREE_PORT_TRIES = 50
_ANY_PORT = range(20_000, 32_000)
"""Below the ports Linux assigns to outgoing connections, which begin at 32768. Otherwise a client waiting for a restart
may be assigned the server's own port, connect to itself, and keep the server from binding it."""


class Received(NamedTuple):
    """A client's message. holder: its CURVE key, or the address that the gateway passed; None: nothing is known."""

    routing: bytes
    frames: list[bytes]
    holder: bytes | None


class ServerSockets:
    """All sockets, bound. Raises ServerError for an address that cannot or must not be bound.

    descriptors: how many the process may have. worker_host: this machine's address for workers on other machines; None:
    all are local. max_accepted: connections that may be open on both ports together; one more closes the oldest silent
    one, or itself. frame_bytes: of a raw frame.
    """

    def __init__(
        self,
        options: ServeOptions,
        descriptors: int = MAX_DESCRIPTORS,
        worker_host: str | None = None,
        frame_bytes: int = SOCKET_BYTES,
    ) -> None:
        self._frames_queued = max(HIGH_WATER_MESSAGES, min(MOST_FRAMES, SOCKET_BYTES // frame_bytes))
        reserved = RESERVED + PER_WORKER * (options.workers - 1)
        self.max_accepted = max(2, min(ACCEPTED_PER_CONNECTION * options.connections, descriptors - reserved))
        host = bare_host(options.host)
        self.keys = (
            load(options.keys, options.authorized_keys, host)
            if options.keys or options.authorized_keys or not is_loopback(host)
            else None
        )
        self.worker_key: bytes | None = None
        """The key of the workers' sockets. Only the workers receive it, so nobody else can use these sockets."""
        self._worker_secret: bytes | None = None
        self.visitor_prefix = secrets.token_hex(8).encode()
        """A secret of the gateway. It begins the routing id of a visitor's connections; the visitor's address ends it,
        after VISITOR_NONCE characters that make it unique."""
        self._gateway_key: bytes | None = None
        if worker_host is not None:
            self.worker_key, self._worker_secret = zmq.curve_keypair()
        self._context = zmq.Context()
        try:
            self._zap = None if self.keys is None else self._open_zap()
            self.turns, self.control, self.port = self._bind_pair(host, options.port)
            self.workers = [self._open_worker(worker_host) for _ in range(options.workers)]
            """For each worker, its socket and the address it connects to."""
            events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
            self._monitors = [socket.get_monitor_socket(events) for socket in (self.turns, self.control)]
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self.address = f"tcp://{bracketed(host)}:{self.port}"
        self._local_host = ON_THIS_MACHINE.get(host, host)
        self._silent: dict[tuple[int, int], None] = {}
        """Connections that have sent nothing yet, oldest first: (0: turn or 1: control socket, descriptor).
        A reused descriptor may be on the other socket before its end on the first one is noticed."""
        self._routing: dict[int, bytes] = {}
        """Descriptor of a connection to the turn socket that has sent something -> its routing id."""
        self._on_control: dict[int, None] = {}
        """Descriptors of connections to the control socket that have sent something, longest silent first."""
        self._whole_until: dict[tuple[int, int], int] = {}
        """How much had come over a connection when no message was unfinished."""
        self._count_at = 0.0
        self._disconnected: list[bytes] = []
        self._poller = zmq.Poller()
        self._reported = {self.turns, self.control, *(socket for socket, _ in self.workers)}
        for socket in (*self._reported, *self._monitors, *([self._zap] if self._zap else [])):
            self._poller.register(socket, zmq.POLLIN)

    @property
    def connections(self) -> int:
        """Clients on the turn socket that have sent a message, which only authorized clients can."""
        return len(self._routing)

    def local_address(self, offset: int) -> str:
        """Where a process on this machine finds the turn socket (offset 0) or the control socket (1)."""
        return f"tcp://{bracketed(self._local_host)}:{self.port + offset}"

    def admit_gateway(self, key: bytes) -> None:
        """Authorize the gateway's public key (Z85). Only if there are keys."""
        assert self.keys is not None
        self._gateway_key = key
        self.keys = replace(self.keys, authorized=self.keys.authorized | {key})

    def describe(self) -> dict[str, str | int]:
        """The address and both ports, for a program that started the server."""
        return {"address": self.address, "port": self.port, "control_port": self.port + 1}

    def poll(self, milliseconds: int) -> set[zmq.Socket[bytes]]:
        """Wait for messages; returns which of `turns`, `control`, `workers` have some. Others are handled here."""
        ready = {socket for socket, _ in self._poller.poll(milliseconds)}
        if self._zap in ready:
            self._handle_zap()
        if ready.intersection(self._monitors):
            self._count_connections()
        if sys.platform == "linux" and time.monotonic() > self._count_at:
            self._close_endless()
        return ready & self._reported

    def receive(self, socket: zmq.Socket[bytes]) -> Received:
        """A client's next message. Raises zmq.Again when there is none."""
        frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        self._count_connections()  # a message may be read before the poll that would report its connection
        routing = frames[0].bytes
        with contextlib.suppress(zmq.ZMQError):  # anything that is not ZMTP 3 comes without a descriptor
            descriptor = int(frames[-1].get(zmq.SRCFD))
            connection = int(socket is self.control), descriptor
            known = connection in self._silent
            self._silent.pop(connection, None)
            self._whole_until.pop(connection, None)
            if socket is self.control:
                if known or descriptor in self._on_control:
                    self._on_control.pop(descriptor, None)
                    self._on_control[descriptor] = None
            elif known or descriptor in self._routing:
                self._routing[descriptor] = routing
            else:
                self._disconnected.append(routing)  # it sent this and disconnected
        return Received(routing, [frame.bytes for frame in frames[1:]], self._holder(routing, frames[-1]))

    def disconnect(self, routing: bytes) -> None:
        """Close a client's connection to the turn socket."""
        for descriptor in [descriptor for descriptor, other in self._routing.items() if other == routing]:
            self.shut(0, descriptor)

    def _holder(self, routing: bytes, frame: zmq.Frame) -> bytes | None:
        if routing.startswith(self.visitor_prefix):
            return routing[len(self.visitor_prefix) + VISITOR_NONCE :] or None
        if self.keys is None:
            return None
        key = str(frame.get("User-Id")).encode()
        return None if key == self._gateway_key else key

    def take_disconnected(self) -> list[bytes]:
        """Routing ids of clients whose connection to the turn socket has ended, each once."""
        if not self._disconnected:
            return []
        connected = set(self._routing.values())
        gone = [routing for routing in self._disconnected if routing not in connected]
        self._disconnected = []
        return gone

    def close(self) -> None:
        """Close all sockets; pending messages may linger for two seconds."""
        self.turns.disable_monitor()
        self.control.disable_monitor()
        self._context.destroy(linger=LINGER_MS)

    def _router(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        socket.router_mandatory = True
        socket.sndhwm = socket.rcvhwm = HIGH_WATER_MESSAGES
        socket.linger = LINGER_MS
        return socket

    def _open_worker(self, host: str | None) -> tuple[zmq.Socket[bytes], str]:
        socket = self._router()
        if host is not None:
            socket.ipv6 = ":" in host
            socket.curve_server, socket.curve_secretkey = True, self._worker_secret
            socket.zap_domain = WORKERS
            socket.heartbeat_ivl, socket.heartbeat_timeout = WORKER_BEAT_MS, WORKER_GONE_MS
        socket.rcvhwm = socket.sndhwm = 1000
        socket.maxmsgsize = WORKER_LIMITS.buffer_bytes
        address = f"tcp://{bracketed(host or '127.0.0.1')}"
        return socket, f"{address}:{socket.bind_to_random_port(address)}"

    def _client_socket(self, host: str) -> zmq.Socket[bytes]:
        socket = self._router()
        socket.maxmsgsize = MAX_FRAME_BYTES
        socket.sndbuf = socket.rcvbuf = SOCKET_BYTES
        socket.sndhwm = self._frames_queued
        socket.ipv6 = ":" in host
        socket.handshake_ivl = HANDSHAKE_MS
        # A client whose network is gone (a cable, a sleeping laptop) is noticed within a minute: 30 s + 3 x 10 s.
        socket.tcp_keepalive, socket.tcp_keepalive_idle = 1, 30
        socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 10, 3
        socket.tcp_maxrt = VANISHED_MS
        if self.keys is not None:
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = self.keys.public, self.keys.secret
            socket.zap_domain = b"animegamer"
            # A client that reconnects under its identity takes over from its lost connection.
            socket.router_handover = True
        return socket

    def _bind_pair(self, host: str, port: int) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes], int]:
        candidates = [port] if port else random.sample(_ANY_PORT, _FREE_PORT_TRIES)
        while True:
            candidate = candidates.pop()
            turns, control = self._client_socket(host), self._client_socket(host)
            try:
                _bind(turns, host, candidate)
                _bind(control, host, candidate + 1)
                return turns, control, candidate
            except ServerError:
                turns.close(0)
                control.close(0)
                if not candidates:
                    raise

    def _open_zap(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.REP)
        socket.bind("inproc://zeromq.zap.01")
        return socket

    def _handle_zap(self) -> None:
        """Answer one ZAP request (RFC 27): 200 for an authorized key, 400 for anything else."""
        assert self._zap is not None and self.keys is not None
        version, request, domain, _, _, mechanism, *credentials = self._zap.recv_multipart()
        key = z85.encode(credentials[0]) if mechanism == b"CURVE" and len(credentials) == 1 else b""
        known = key in self.keys.authorized or domain == WORKERS
        status, text = (b"200", b"OK") if known else (b"400", b"this key is not authorized")
        self._zap.send_multipart([version, request, status, text, key if known else b"", b""])

    def _count_connections(self) -> None:
        for offset, monitor in enumerate(self._monitors):
            while monitor.poll(0):
                event, descriptor = struct.unpack("=HI", monitor.recv_multipart()[0])
                self._silent.pop((offset, descriptor), None)
                self._whole_until[offset, descriptor] = 0
                if offset:
                    self._on_control.pop(descriptor, None)
                elif descriptor in self._routing:
                    self._disconnected.append(self._routing.pop(descriptor))
                if event == zmq.EVENT_ACCEPTED:
                    self._silent[offset, descriptor] = None
                    self._close_surplus()

    def _close_surplus(self) -> None:
        """If there are too many connections, close the one silent longest; not one to the turn socket that has spoken.

        Control connections keep nothing, so their clients just connect again.
        """
        if len(self._silent) + len(self._routing) + len(self._on_control) <= self.max_accepted:
            return
        if len(self._silent) == 1 and self._on_control:
            connection = 1, next(iter(self._on_control))
            del self._on_control[connection[1]]
        else:
            connection = next(iter(self._silent))
            del self._silent[connection]
        self.shut(*connection)

    def _close_endless(self) -> None:
        """While too much has arrived of unfinished messages, close the connection with the most."""
        self._count_at = time.monotonic() + COUNT_S
        talking = [
            *((0, descriptor) for descriptor in self._routing),
            *((1, descriptor) for descriptor in self._on_control),
        ]
        came = {connection: _bytes_received(connection[1]) for connection in [*self._silent, *talking]}
        self._whole_until = {connection: self._whole_until.get(connection, size) for connection, size in came.items()}
        unfinished = {connection: size - self._whole_until[connection] for connection, size in came.items()}
        while sum(unfinished.values()) > UNFINISHED_BYTES:
            most = max(unfinished, key=unfinished.__getitem__)
            del unfinished[most]
            self.shut(*most)

    def shut(self, offset: int, descriptor: int) -> None:
        """Close a connection to the turn socket (offset 0) or the control socket (1).

        libzmq owns the descriptor and cannot be asked to close it, but does so once the connection is shut down. The
        descriptor may belong to another file by now, so its port is checked.
        """
        with contextlib.suppress(OSError):
            connection = tcp.socket(fileno=descriptor)
            try:
                if connection.getsockname()[1] == self.port + offset:
                    connection.shutdown(tcp.SHUT_RDWR)
            finally:
                connection.detach()


def _bytes_received(descriptor: int) -> int:
    """What a TCP connection has received so far, by Linux; 0 if the descriptor belongs to another file by now."""
    if sys.platform != "linux":
        return 0
    with contextlib.suppress(OSError):
        connection = tcp.socket(fileno=descriptor)
        try:
            info = connection.getsockopt(tcp.IPPROTO_TCP, tcp.TCP_INFO, _RECEIVED_AT + 8)
            return int.from_bytes(info[_RECEIVED_AT:], sys.byteorder)
        finally:
            connection.detach()
    return 0


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(socket: zmq.Socket[bytes], host: str, port: int) -> None:
    try:
        socket.bind(f"tcp://{bracketed(host)}:{port}")
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            raise PortInUseError(
                "the port is in use",
                where=f"port {port}",
                do="stop the other program, or choose another port with --port (PORT: turns, PORT + 1: control)",
            ) from error
        if error.errno == errno.EACCES:
            what = "only an administrator may bind this port"
            raise ServerError(what, where=f"port {port}", do="choose a port above 1023") from error
        raise ServerError(
            "the address cannot be bound",
            where=f"--host {host}, port {port}",
            found=str(error),
            do="give an address of this machine: 127.0.0.1 for local programs, 0.0.0.0 for all its networks",
        ) from error
