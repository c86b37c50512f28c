"""Plays one turn as a visitor's page does: through the gateway, over its WebSocket."""

from __future__ import annotations

import uuid

from animegamer_rt.errors import ServerError

from .gateway_client import connected

SENTENCES = ("Tofi waves gently in the meadow.", "Mirel jumps.", "Someone waits.")


def first_turn(port: int) -> str:
    """Play a turn on the gateway of this port; returns what the server calls itself. Raises ServerError.

    A sentence that the server's lists refuse is followed by the next one. If they refuse all, the turn that the server
    played before it was ready has to do.
    """
    with connected(port) as client:
        opened = client.ask("open", {}, "opened")
        token, session = opened["fields"]["token"], opened["session"]
        for sentence in SENTENCES:
            turn = {"instruction": sentence, "turn_id": uuid.uuid4().hex, "token": token}
            ended = client.ask("turn", turn, "done", "error", session=session)
            if ended["type"] == "done":
                break
            if ended["fields"].get("code") != "blocked":
                raise ServerError("the turn failed", found=ended["fields"].get("text"))
        client.ask("close", {"token": token}, "closed", session=session)
        return client.server
