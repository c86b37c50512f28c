"""PROTOCOL.md's bytes for a client without a ZeroMQ library: a plain TCP socket sends them and is answered."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from client.conformance.fake_server import FakeServer

from animegamer_client.codec import decode

PROTOCOL = Path(__file__).parents[2] / "client" / "PROTOCOL.md"


def shown_bytes() -> list[bytes]:
    """The two blocks of hex in the section, without what is said of each line."""
    section = PROTOCOL.read_text(encoding="utf-8").split("### ZMTP for a DEALER")[1].split("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [b"".join(bytes.fromhex(line.split("   ")[0]) for line in block.splitlines()) for block in blocks]


def test_a_plain_socket_that_sends_the_bytes_shown_is_answered(server: FakeServer) -> None:
    opening, ping = shown_bytes()
    assert len(opening) == 107
    with socket.create_connection(("127.0.0.1", server.port + 1), timeout=10) as wire, wire.makefile("rb") as reader:
        wire.sendall(opening)
        assert reader.read(10) == opening[:10]
        assert reader.read(54)[2:6] == b"NULL"
        flags, size = reader.read(2)
        assert flags == 0x04 and b"ROUTER" in reader.read(size)
        wire.sendall(ping)
        frames = []
        while flags != 0x00:
            flags, size = reader.read(2)
            frames.append(reader.read(size))
    assert decode(frames).type == "pong"
