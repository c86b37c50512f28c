"""The router's sockets: those for players, a connection to a server for each player, and whether each server is there.

Knows ZeroMQ and addresses; nothing of messages or sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from animegamer_rt.serving.server.curve_keys import read_client_keys
from animegamer_rt.serving.server.descriptors import raise_limit
from animegamer_rt.serving.server.sockets import HIGH_WATER_MESSAGES, VANISHED_MS, ServerSockets
from animegamer_rt.serving.wire import SERVER_LIMITS

from .options import RouteOptions

log = logging.getLogger(__name__)
HEARTBEAT_MS, HUNG_MS = 2000, 10_000
"""How often a server is asked whether it is there; one that does not answer for so long counts as gone."""
RECONNECT_MS = 100


class PlayerSockets(ServerSockets):
    """Where players connect: the two sockets of a server, its limits and its keys."""

    def __init__(self, options: RouteOptions) -> None:
        super().__init__(options.listen, raise_limit())

    def watch(self, socket: zmq.Socket[bytes]) -> None:
        """Have `poll` tell of a further socket."""
        self._poller.register(socket, zmq.POLLIN)
        self._reported.add(socket)

    def forget(self, socket: zmq.Socket[bytes]) -> None:
        """Have `poll` tell of it no more."""
        if socket in self._reported:
            self._reported.remove(socket)
            self._poller.unregister(socket)

    def disconnect(self, routing: bytes) -> None:
        """Close a player's connection to the turn socket, so that the player notices and connects anew."""
        for descriptor, name in list(self._routing.items()):
            if name == routing:
                self.shut(0, descriptor)


@dataclass(slots=True, eq=False)
class ServerConnection:
    """A player's connection to one server. undelivered: the server's last message, if the player takes none now."""

    player: Any
    server: int
    socket: zmq.Socket[bytes]
    undelivered: Sequence[zmq.Frame] | None = None


@dataclass(slots=True)
class Server:
    """One server. monitor: of a connection to its control socket that is there to see whether the server is."""

    address: str
    control: str
    watch: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    reachable: bool = False
    connections: set[ServerConnection] = field(default_factory=set)


class Servers:
    """All servers, in the order of their shards."""

    def __init__(self, options: RouteOptions) -> None:
        self._keys = None
        if options.client_keys is not None and options.server_key is not None:
            self._keys = read_client_keys(options.client_keys, options.server_key)
        self._context = zmq.Context()
        self._context.max_sockets = self._context.get(zmq.SOCKET_LIMIT)
        self.all = [self._watched(address) for address in options.servers]

    def open_connection(self, player: object, number: int, *, control: bool) -> ServerConnection:
        """A new connection to a server, of one player alone."""
        server = self.all[number]
        socket = self._dealer(server.address)
        socket.rcvhwm = HIGH_WATER_MESSAGES
        socket.connect(server.control if control else server.address)
        connection = ServerConnection(player, number, socket)
        server.connections.add(connection)
        return connection

    def close_connection(self, connection: ServerConnection) -> None:
        """Close it; the server sees that the player is gone."""
        self.all[connection.server].connections.discard(connection)
        connection.socket.close(0)

    def lost(self, server: Server) -> bool:
        """Note what has happened to a server since; returns whether the connection to it was lost."""
        lost = False
        while server.monitor.poll(0):
            event = recv_monitor_message(server.monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                server.reachable = True
                log.info("server %s is there", server.address)
            elif event == zmq.EVENT_DISCONNECTED and server.reachable:
                server.reachable, lost = False, True
                log.warning("server %s is gone; its sessions wait until it is back", server.address)
        return lost

    def close(self) -> None:
        """Close all connections."""
        for server in self.all:
            server.watch.disable_monitor()
        self._context.destroy(linger=0)

    def _watched(self, address: str) -> Server:
        host, _, port = address.rpartition(":")
        control = f"{host}:{int(port) + 1}"
        watch = self._dealer(address)
        watch.heartbeat_ivl, watch.heartbeat_timeout = HEARTBEAT_MS, HUNG_MS
        monitor = watch.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        watch.connect(control)
        return Server(address, control, watch, monitor)

    def _dealer(self, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        socket.linger, socket.ipv6 = 0, "[" in address
        socket.reconnect_ivl = RECONNECT_MS
        socket.maxmsgsize = max(SERVER_LIMITS.buffer_bytes, SERVER_LIMITS.header_bytes)
        socket.tcp_keepalive, socket.tcp_maxrt = 1, VANISHED_MS
        if self._keys is not None:
            socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self._keys
        return socket
