"""The gateway's settings, passed by the server as one line of JSON on standard input.

They include secrets, so they are in no argument or environment variable. The pipe stays open: its end tells the gateway
that the server is gone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """descriptor: the listening TCP socket, inherited. turns, control: ZeroMQ addresses of the server.

    keys: the server's public key, then the gateway's public and secret keys (Z85); empty without CURVE.
    visitor_prefix: tells the server that a routing id ends with a visitor's address. password: required to open the
    page or the WebSocket; None: not required. origins: of other sites' pages that may connect, `https://host[:port]`.
    trusted_proxies: addresses and networks of proxies that pass on a visitor's address.
    connections: WebSockets that may be open.
    """

    descriptor: int
    turns: str
    control: str
    keys: tuple[str, ...]
    visitor_prefix: str
    password: str | None
    origins: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    connections: int

    def to_line(self) -> bytes:
        """Encode as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> GatewaySettings:
        """The inverse of `to_line`."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**fields | {name: tuple(one) for name, one in fields.items() if isinstance(one, list)})
