"""Connects one WebSocket to two ZeroMQ sockets, converting each message.

Nothing is buffered here. If a browser does not read, this stops reading from the server, whose bounded queue for this
client drops a turn's frames together (`send_queue_mib`); the gap in `seq` tells the page to replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

import zmq
import zmq.asyncio
from starlette.websockets import WebSocket, WebSocketDisconnect

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.wire.client_errors import client_text
from animegamer_rt.serving.wire.codec import SERVER_LIMITS, Message, decode, encode
from animegamer_rt.serving.wire.schema import MESSAGES

from .message_forms import error_answer, read_request, write_answer
from .metrics import GatewayMetrics
from .settings import GatewaySettings
from .visitors import Visitor, Visitors

UNREAD_MESSAGES = 8
"""Messages that ZeroMQ queues for a browser that does not read. Further ones stay in the server."""
SOCKET_BYTES = 256 * 1024
PICTURES = {"codec": "jpeg", "jpeg_quality": 90}
"""Defaults of `hello` over WebSocket: raw pictures are only for the same machine."""


READY_TIMEOUT_S, READY_S = 2.0, 1.0
"""How long the server may take to say its state, and how old that answer may be."""
UNREACHABLE = "unreachable"


class ServerLink:
    """Opens connections to the server. `visitors`: the open WebSockets."""

    def __init__(self, settings: GatewaySettings, metrics: GatewayMetrics) -> None:
        self._settings, self._metrics, self._context = settings, metrics, zmq.asyncio.Context()
        self._context.set(zmq.MAX_SOCKETS, 2 * settings.connections + 64)
        self.visitors = Visitors(settings.connections)
        self._state: asyncio.Task[str] | None = None
        self._state_until = 0.0

    def open(self, address: str, peer: str = "") -> zmq.asyncio.Socket:
        """A DEALER connected to one address; the caller closes it. peer: the visitor's address, charged for it."""
        socket = self._context.socket(zmq.DEALER)
        socket.linger, socket.ipv6 = 0, "[" in address
        socket.rcvhwm = socket.sndhwm = UNREAD_MESSAGES
        socket.rcvbuf = SOCKET_BYTES
        socket.maxmsgsize = SERVER_LIMITS.buffer_bytes
        if self._settings.keys:
            server, public, secret = (key.encode() for key in self._settings.keys)
            socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = server, public, secret
        if peer:
            socket.routing_id = f"{self._settings.visitor_prefix}{secrets.token_hex(8)}{peer}".encode()
        socket.connect(address)
        return socket

    async def state(self) -> str:
        """The server's state, asked once for all who want to know within READY_S."""
        if self._state is None or (self._state.done() and time.monotonic() > self._state_until):
            self._state = asyncio.create_task(self._ask_state())
        return await asyncio.shield(self._state)

    async def _ask_state(self) -> str:
        try:
            with self.open(self._settings.control) as socket:
                await socket.send_multipart(encode(Message("status")))
                if not await socket.poll(round(1000 * READY_TIMEOUT_S)):
                    return UNREACHABLE
                return str(decode(await socket.recv_multipart(), SERVER_LIMITS).fields["state"])
        except (zmq.ZMQError, ProtocolError):
            return UNREACHABLE
        finally:
            self._state_until = time.monotonic() + READY_S

    async def carry(self, visitor: Visitor, form: str) -> None:
        """Carry messages both ways until the WebSocket is closed or the visitor must leave."""
        turns_at, control_at = self._settings.turns, self._settings.control
        with self.open(turns_at, visitor.peer) as turns, self.open(control_at) as control:
            visitor.reader = asyncio.create_task(self._to_server(visitor, turns, control, form))
            browser = visitor.browser
            tasks = {
                visitor.reader,
                asyncio.create_task(self._to_browser(turns, browser, form)),
                asyncio.create_task(self._to_browser(control, browser, form)),
            }
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                        await task

    async def _to_browser(self, server: zmq.asyncio.Socket, browser: WebSocket, form: str) -> None:
        while True:
            frames = [frame.buffer for frame in await server.recv_multipart(copy=False)]
            await self._send(browser, write_answer(frames, form))

    async def _to_server(
        self, visitor: Visitor, turns: zmq.asyncio.Socket, control: zmq.asyncio.Socket, form: str
    ) -> None:
        browser = visitor.browser
        while True:
            await asyncio.sleep(0)  # others come between the messages that one sends at once
            received = await browser.receive()
            if received["type"] != "websocket.receive":
                return
            self._metrics.received.inc()
            text = received.get("text")
            try:
                message = read_request(received["bytes"] if text is None else text, form)
            except ProtocolError as error:
                self._metrics.unreadable.inc()
                fields = {"code": error.code, "text": client_text(error)} | ({"do": error.do} if error.do else {})
                await self._send(browser, error_answer(fields, error.request, form))
                continue
            if message.type == "hello":
                message = Message("hello", PICTURES | dict(message.fields), message.id)
            if message.type == "turn":
                visitor.played = time.monotonic()
            kind = MESSAGES["client"].get(message.type)
            await (control if kind is not None and "T" not in kind.sockets else turns).send_multipart(encode(message))

    async def _send(self, browser: WebSocket, data: str | bytes) -> None:
        """Send a message. uvicorn waits here until the browser has accepted earlier ones."""
        await (browser.send_text(data) if isinstance(data, str) else browser.send_bytes(data))
        self._metrics.sent(len(data))
