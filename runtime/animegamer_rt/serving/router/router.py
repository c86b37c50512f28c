"""The router's loop: which server gets a message, and to whom an answer goes.

A session's token names the server that it was opened at (`store.shard_of`), if the servers were started with `--shard`.
Where that server does not know it (it has moved, or there are no shards), the others are asked, one after the other. So
the router needs to remember nothing; what it does remember only spares the search.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType

import zmq

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.server.log_lines import log_to_stderr
from animegamer_rt.serving.store import shard_of
from animegamer_rt.serving.wire import CLIENT_LIMITS, SERVER_LIMITS, Buffer, Message, decode, encode

from .connections import PlayerSockets, ServerConnection, Servers
from .options import RouteOptions

log = logging.getLogger(__name__)
IDLE_POLL_MS, RETRY_POLL_MS, MESSAGES_PER_ROUND = 200, 4, 32
MAX_REMEMBERED = 100_000
"""Sessions whose server is remembered."""
MAX_ASKED, MAX_ON_CONTROL = 64, 1024
"""Requests of a player that wait for their first answer; connections to the control socket that are remembered."""
HELLO_ID = "router"
ELSEWHERE = frozenset({"unknown_session"})
"""Answers to a request about a session after which the next server is asked."""
FULL = frozenset({"too_many_sessions", "draining", "degraded"})
"""The same for a request that any server may take."""


@dataclass(slots=True)
class Asking:
    """A request whose first answer has not come. left: servers that were not asked yet. refusal: the first answer."""

    frames: Sequence[Buffer]
    left: list[int]
    codes: frozenset[str]
    hello: bool = False
    skipped: bool = False
    refusal: Sequence[zmq.Frame] | None = None


@dataclass(slots=True, eq=False)
class Player:
    """One connection of a player: to the turn socket, or to control."""

    routing: bytes
    control: bool
    hello: Message | None = None
    home: int | None = None
    connections: dict[int, ServerConnection] = field(default_factory=dict)
    asking: OrderedDict[str, Asking] = field(default_factory=OrderedDict)


def route(options: RouteOptions) -> int:
    """Route until a signal comes; returns the exit code. Raises AnimeGamerError for what keeps it from starting."""
    log_to_stderr("text")
    with contextlib.ExitStack() as stack:
        sockets = PlayerSockets(options)
        stack.callback(sockets.close)
        servers = Servers(options)
        stack.callback(servers.close)
        router = Router(sockets, servers)
        with router.signals():
            print(f"ready {sockets.address} (control {sockets.port + 1})", flush=True)
            router.run()
    return 0


class Router:
    """The event loop."""

    def __init__(self, sockets: PlayerSockets, servers: Servers) -> None:
        self._sockets, self._servers = sockets, servers
        self._players: OrderedDict[tuple[bytes, bool], Player] = OrderedDict()
        self._connections: dict[zmq.Socket[bytes], ServerConnection] = {}
        self._where: OrderedDict[str, int] = OrderedDict()
        self._stopped = False
        for server in servers.all:
            sockets.watch(server.monitor)

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Within, SIGINT and SIGTERM end `run`."""

        def stop(number: int, frame: FrameType | None) -> None:
            self._stopped = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self) -> None:
        """Route until stopped."""
        while not self._stopped:
            blocked = [one for one in self._connections.values() if one.undelivered is not None]
            ready = self._sockets.poll(RETRY_POLL_MS if blocked else IDLE_POLL_MS)
            for server in self._servers.all:
                if server.monitor in ready and self._servers.lost(server):
                    for connection in list(server.connections):
                        self._drop(connection.player)
            for socket in (self._sockets.turns, self._sockets.control):
                if socket in ready:
                    self._take_requests(socket)
            for routing in self._sockets.take_disconnected():
                if (player := self._players.get((routing, False))) is not None:
                    self._drop(player)
            for connection in blocked:
                if connection.undelivered is not None and connection.socket in self._connections:
                    frames, connection.undelivered = connection.undelivered, None
                    if self._forward(connection, frames):
                        self._sockets.watch(connection.socket)
            for socket in ready:
                if socket in self._connections:  # else it is another's, or was closed in this round
                    self._take_answers(self._connections[socket])

    def _take_requests(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(MESSAGES_PER_ROUND):
            try:
                routing, *frames = self._sockets.receive(socket)
            except zmq.Again:
                return
            key = routing, socket is self._sockets.control
            player = self._players.setdefault(key, Player(*key))
            if player.control:
                self._players.move_to_end(key)
                controls = [one for one in self._players.values() if one.control]
                for one in controls[: len(controls) - MAX_ON_CONTROL]:
                    self._drop(one)
            self._request(player, frames)

    def _request(self, player: Player, frames: Sequence[Buffer]) -> None:
        """Send a request to the server that it is for; what cannot be read, to any, which says what is wrong."""
        try:
            message = decode(frames, CLIENT_LIMITS, check=False)
        except ProtocolError:
            message = Message("")
        token = message.fields.get("token")
        if isinstance(token, str):
            count = len(self._servers.all)
            first = self._where.get(message.session or "", shard_of(token, count) - 1)
            asking = Asking(frames, [first, *(one for one in range(count) if one != first)], ELSEWHERE)
        elif message.type in ("hello", "open") or player.home is None:
            asking = Asking(frames, self._by_load(player.home), FULL, hello=message.type == "hello")
        else:
            asking = Asking(frames, [player.home], frozenset())
        if message.type == "hello" and not player.control:
            player.hello = replace(message, id=HELLO_ID)
            for number, connection in player.connections.items():
                if number != player.home:
                    self._send(connection, encode(player.hello))
        self._ask(player, message.id, asking)

    def _by_load(self, home: int | None) -> list[int]:
        """All servers: `home` first, then those with the fewest players."""
        return sorted(
            range(len(self._servers.all)), key=lambda one: (one != home, len(self._servers.all[one].connections), one)
        )

    def _ask(self, player: Player, id: str | None, asking: Asking) -> None:
        """Send a request to the next server that may have the answer; if there is none, say so."""
        while asking.left:
            number = asking.left.pop(0)
            if not self._servers.all[number].reachable:
                asking.skipped = True
                continue
            if id is not None:
                player.asking[id] = asking
                while len(player.asking) > MAX_ASKED:
                    player.asking.popitem(last=False)
            self._send(self._connection_to(player, number, asking), asking.frames)
            return
        if asking.skipped or asking.refusal is None:
            fields = {
                "code": "starting",
                "text": "the server of this session, or every server, cannot be reached now",
                "do": "try again in a moment; the session is kept",
            }
            self._to_player(player, encode(Message("error", fields, parent=id)))
        else:
            self._to_player(player, asking.refusal)

    def _connection_to(self, player: Player, number: int, asking: Asking) -> ServerConnection:
        """The player's connection to a server. A new one says hello first, as the player did."""
        connection = player.connections.get(number)
        if connection is None:
            connection = player.connections[number] = self._servers.open_connection(
                player, number, control=player.control
            )
            self._connections[connection.socket] = connection
            self._sockets.watch(connection.socket)
            if player.hello is not None and not asking.hello:
                self._send(connection, encode(player.hello))
        if not player.control and (player.home is None or asking.hello):
            player.home = number
        return connection

    def _send(self, connection: ServerConnection, frames: Sequence[Buffer]) -> None:
        with contextlib.suppress(zmq.Again):  # so many that the server takes no more: the player asks again
            connection.socket.send_multipart(frames, zmq.NOBLOCK)

    def _take_answers(self, connection: ServerConnection) -> None:
        for _ in range(MESSAGES_PER_ROUND):
            try:
                frames = connection.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if not self._answer(connection, frames):
                return

    def _answer(self, connection: ServerConnection, frames: Sequence[zmq.Frame]) -> bool:
        """Handle a server's message. Returns whether more can be taken from this connection."""
        player: Player = connection.player
        try:
            message = decode([frame.buffer for frame in frames], SERVER_LIMITS, check=False)
        except ProtocolError as error:
            log.error("server %s sent no message: %s", self._servers.all[connection.server].address, error)
            return True
        if message.parent == HELLO_ID:
            return True
        asking = player.asking.pop(message.parent or "", None)
        if asking is not None and message.type == "error" and message.fields.get("code") in asking.codes:
            if message.session is not None:
                self._where.pop(message.session, None)
            asking.refusal = asking.refusal or frames
            self._ask(player, message.parent, asking)
            return connection.socket in self._connections
        if message.session is not None and message.type != "error":
            self._where[message.session] = connection.server
            self._where.move_to_end(message.session)
            if len(self._where) > MAX_REMEMBERED:
                self._where.popitem(last=False)
        return self._forward(connection, frames)

    def _forward(self, connection: ServerConnection, frames: Sequence[zmq.Frame]) -> bool:
        """Hand a message on to the player. False: the player takes none now, or is gone; its server's socket rests."""
        if not self._to_player(connection.player, frames):
            if connection.socket in self._connections:
                connection.undelivered = frames
                self._sockets.forget(connection.socket)
            return False
        return True

    def _to_player(self, player: Player, frames: Sequence[Buffer | zmq.Frame]) -> bool:
        socket = self._sockets.control if player.control else self._sockets.turns
        try:
            socket.send_multipart([player.routing, *frames], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._drop(player)
            return False
        return True

    def _drop(self, player: Player) -> None:
        """Close a player's connections, also to servers. Whoever is still there connects anew, and is sent on."""
        self._players.pop((player.routing, player.control), None)
        for connection in player.connections.values():
            self._sockets.forget(connection.socket)
            self._connections.pop(connection.socket, None)
            self._servers.close_connection(connection)
        player.connections.clear()
        if not player.control:
            self._sockets.disconnect(player.routing)
