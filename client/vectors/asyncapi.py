"""The WebSocket as an AsyncAPI 3.0 document. The messages themselves are in messages.json beside it."""

from __future__ import annotations

from typing import Any

from animegamer_rt.serving.gateway.message_forms import SUBPROTOCOLS
from animegamer_rt.serving.wire import CODES, MESSAGES, VERSION, MessageType

_FORM = (
    "Subprotocol animegamer.v1.json: this object as JSON text; with a buffer, a binary message of 4 bytes (big-endian "
    "length of the JSON), the JSON, the buffer. animegamer.v1.msgpack: always binary, with msgpack in place of JSON."
)


def asyncapi() -> dict[str, Any]:
    """One channel, one message for each type of the table, one operation for each request and its answers."""
    names = [_name(sender, kind) for sender, kinds in MESSAGES.items() for kind in kinds.values()]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "AnimeGamer over WebSocket; made by client/vectors/make.py",
            "version": VERSION,
            "description": f"{_FORM} PROTOCOL.md describes sessions, turns and what is done after a loss.",
        },
        "defaultContentType": "application/json",
        "servers": {
            "here": {
                "host": "127.0.0.1:8080",
                "protocol": "ws",
                "description": "`animegamer-rt serve --web 8080`; wss behind a TLS proxy, at any path.",
            }
        },
        "channels": {
            "ws": {
                "address": "ws",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
                "bindings": {"ws": {"method": "GET", "headers": _subprotocols()}},
            }
        },
        "operations": _operations(),
        "x-codes": list(CODES),
        "components": {
            "messages": {
                _name(sender, kind): _message(sender, kind)
                for sender, kinds in MESSAGES.items()
                for kind in kinds.values()
            },
        },
    }


def _name(sender: str, kind: MessageType) -> str:
    return f"{sender}.{kind.type}"


def _subprotocols() -> dict[str, Any]:
    return {"type": "object", "properties": {"Sec-WebSocket-Protocol": {"type": "string", "enum": list(SUBPROTOCOLS)}}}


def _operations() -> dict[str, Any]:
    return {
        kind.type: {
            "action": "receive",
            "summary": kind.doc,
            "channel": {"$ref": "#/channels/ws"},
            "messages": [{"$ref": f"#/channels/ws/messages/client.{kind.type}"}],
            "reply": {
                "channel": {"$ref": "#/channels/ws"},
                "messages": [{"$ref": f"#/channels/ws/messages/server.{answer}"} for answer in kind.answers],
            },
        }
        for kind in MESSAGES["client"].values()
    }


def _message(sender: str, kind: MessageType) -> dict[str, Any]:
    name = _name(sender, kind)
    payload = {"$ref": f"messages.json#/$defs/{name}"}
    return {"name": name, "summary": kind.doc, "payload": payload, "x-since": kind.since, "x-buffers": kind.buffers}
