"""Plays one turn as a visitor's page does: through the gateway, over its WebSocket (client/PROTOCOL.md)."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from animegamer_rt.errors import ServerError

SENTENCES = ("Tofi waves gently in the meadow.", "Mirel jumps.", "Someone waits.")
TIMEOUT_S = 300.0
"""Time limit for the whole exchange."""
SUBPROTOCOL = "animegamer.v1.json"


def first_turn(port: int) -> str:
    """Play a turn on the gateway of this port; returns the server's name and version. Raises ServerError.

    If the server's lists refuse a sentence, the next one is tried. If they refuse all, the server's own warm-up turn
    must suffice.
    """
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    address = f"ws://127.0.0.1:{port}/ws"
    options: dict[str, Any] = {"subprotocols": [Subprotocol(SUBPROTOCOL)], "max_size": None, "proxy": None}
    try:
        with connect(address, open_timeout=10, **options) as socket:
            return _play(socket)
    except (OSError, WebSocketException, ValueError, KeyError) as error:  # TimeoutError is an OSError
        found = str(error) or type(error).__name__
        raise ServerError("the gateway does not respond as expected", where=address, found=found) from error


def _play(socket: Any) -> str:
    end = time.monotonic() + TIMEOUT_S

    def ask(kind: str, fields: dict[str, Any], *answers: str, **header: Any) -> dict[str, Any]:
        socket.send(json.dumps({"type": kind, "id": uuid.uuid4().hex, "fields": fields, **header}))
        while True:
            data = socket.recv(timeout=max(0.0, end - time.monotonic()))
            if isinstance(data, bytes):  # a picture
                continue
            message: dict[str, Any] = json.loads(data)
            if message["type"] in answers:
                return message
            if message["type"] == "error":
                raise ServerError(f"the server refused: {kind}", found=message["fields"].get("text"))

    server = str(ask("hello", {"versions": [1], "client": "kiosk"}, "welcome")["fields"]["server"])
    opened = ask("open", {}, "opened")
    token, session = opened["fields"]["token"], opened["session"]
    for sentence in SENTENCES:
        turn = {"instruction": sentence, "turn_id": uuid.uuid4().hex, "token": token}
        ended = ask("turn", turn, "done", "error", session=session)
        if ended["type"] == "done":
            break
        if ended["fields"].get("code") != "blocked":
            raise ServerError("the turn failed", found=ended["fields"].get("text"))
    ask("close", {"token": token}, "closed", session=session)
    return server
