"""A client of this machine's gateway, as a page is one: over its WebSocket, one request after the other.

Knows the few messages that the kit takes (client/PROTOCOL.md); nothing of why they are sent.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from animegamer_rt.errors import ServerError

TIMEOUT_S = 300.0
"""Longest time for all that is asked on one connection."""
SUBPROTOCOL = "animegamer.v1.json"


class GatewayClient:
    """One connection, from `connected`. server: what the server calls itself."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._limit = socket, time.monotonic() + TIMEOUT_S
        self.server = str(self.ask("hello", {"versions": [1], "client": "kiosk"}, "welcome")["fields"]["server"])

    def ask(self, kind: str, fields: dict[str, Any], *answers: str, **header: Any) -> dict[str, Any]:
        """Send a request; returns the first of these answers. Raises ServerError for an error that is none of them."""
        self._socket.send(json.dumps({"type": kind, "id": uuid.uuid4().hex, "fields": fields, **header}))
        while True:
            data = self._socket.recv(timeout=max(0.0, self._limit - time.monotonic()))
            if isinstance(data, bytes):  # a picture
                continue
            message: dict[str, Any] = json.loads(data)
            if message["type"] in answers:
                return message
            if message["type"] == "error":
                raise ServerError(f"the server refused: {kind}", found=message["fields"].get("text"))


@contextmanager
def connected(port: int) -> Iterator[GatewayClient]:
    """A client of the gateway of this port. Raises ServerError for whatever goes wrong, within it, too."""
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    address = f"ws://127.0.0.1:{port}/ws"
    try:
        with connect(
            address, subprotocols=[Subprotocol(SUBPROTOCOL)], max_size=None, proxy=None, open_timeout=10
        ) as socket:
            yield GatewayClient(socket)
    except (OSError, WebSocketException, ValueError, KeyError) as error:  # TimeoutError is an OSError
        found = str(error) or type(error).__name__
        raise ServerError("the gateway does not answer as it should", where=address, found=found) from error
