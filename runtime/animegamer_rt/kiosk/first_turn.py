"""Plays one turn as a visitor's page does: through the gateway, over its WebSocket.

Knows the few messages that a turn takes (client/PROTOCOL.md); nothing of why it is played.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from animegamer_rt.errors import ServerError

TIMEOUT_S = 300.0
"""Longest wait for the turn, and for each message."""
SUBPROTOCOL = "animegamer.v1.json"
SENTENCES = ("Tofi waves gently in the meadow.", "Mirel jumps.", "Someone waits.")


def first_turn(port: int, sentences: Sequence[str] = SENTENCES) -> str:
    """Play a turn on the gateway of this port; returns what the server calls itself. Raises ServerError.

    A sentence that the server's lists refuse is followed by the next one. If they refuse all, the turn that the server
    played before it was ready has to do.
    """
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    address, limit = f"ws://127.0.0.1:{port}/ws", time.monotonic() + TIMEOUT_S
    try:
        with connect(address, subprotocols=[SUBPROTOCOL], max_size=None, proxy=None, open_timeout=10) as socket:  # type: ignore[list-item]

            def send(kind: str, fields: dict[str, Any], **header: Any) -> None:
                socket.send(json.dumps({"type": kind, "id": uuid.uuid4().hex, "fields": fields, **header}))

            def receive(*kinds: str) -> dict[str, Any]:
                """The next message of these kinds. Raises ServerError for an error that is none of them."""
                while True:
                    data = socket.recv(timeout=max(0.0, limit - time.monotonic()))
                    if isinstance(data, bytes):
                        continue
                    message: dict[str, Any] = json.loads(data)
                    if message["type"] in kinds:
                        return message
                    if message["type"] == "error":
                        raise ServerError("the turn failed", found=message["fields"].get("text"))

            send("hello", {"versions": [1], "client": "kiosk update"})
            server = str(receive("welcome")["fields"]["server"])
            send("open", {})
            opened = receive("opened")
            token, session = opened["fields"]["token"], {"session": opened["session"]}
            for sentence in sentences:
                send("turn", {"instruction": sentence, "turn_id": uuid.uuid4().hex, "token": token}, **session)
                ended = receive("done", "error")
                if ended["type"] == "done":
                    break
                if ended["fields"].get("code") != "blocked":
                    raise ServerError("the turn failed", found=ended["fields"].get("text"))
            send("close", {"token": token}, **session)
            receive("closed")
            return server
    except (OSError, WebSocketException, ValueError, KeyError) as error:  # TimeoutError is an OSError
        raise ServerError("no turn was played", where=address, found=str(error) or type(error).__name__) from error
