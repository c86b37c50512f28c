"""Where the server is and how this client wants its pictures: checked once, before any socket.

Knows addresses, key files and the fields of hello.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import zmq
import zmq.auth

from .codec import MAJOR, Message

CLIENT_NAME = "animegamer-client (python)"
PIXEL_FORMATS = ("rgb24", "rgba32", "bgra32")
CODECS = ("raw", "jpeg", "mp4")


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys, 40 characters of Z85 each; the secret one is not shown."""

    server: bytes
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"Keys(server={self.server!r}, public={self.public!r})"


@dataclass(frozen=True, slots=True)
class Options:
    """What hello asks for. Raises ValueError for what the protocol does not have."""

    pixel_format: str = "rgb24"
    flip: bool = False
    codec: str = "raw"
    jpeg_quality: int = 90
    clip: bool = False

    def __post_init__(self) -> None:
        _one_of("pixel_format", self.pixel_format, PIXEL_FORMATS)
        _one_of("codec", self.codec, CODECS)
        if not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"jpeg_quality is {self.jpeg_quality}; expected 1..100")

    def hello(self) -> Message:
        """The first message on each connection."""
        return Message("hello", {"versions": [MAJOR], "client": CLIENT_NAME, **asdict(self)})


def addresses(address: str) -> tuple[str, str]:
    """The turn and the control address (the next port) of a server. Raises ValueError."""
    found = re.fullmatch(r"(?:tcp://)?([\w.:%\[\]-]+):(\d{1,5})", address)
    port = int(found[2]) if found else 0
    if found is None or not 1 <= port <= 65534:
        raise ValueError(f"{address!r} is no address of a server; expected tcp://HOST:PORT, as in tcp://127.0.0.1:5570")
    return f"tcp://{found[1]}:{port}", f"tcp://{found[1]}:{port + 1}"


def read_keys(server_key: str | os.PathLike[str] | None, client_keys: str | os.PathLike[str] | None) -> Keys | None:
    """Keys for a server that is not on this machine: its public key (or the file), and the file of ours, both or none.

    Raises ValueError.
    """
    if server_key is None and client_keys is None:
        return None
    if server_key is None or client_keys is None:
        raise ValueError("server_key and client_keys go together: the server's public key, and the file of yours")
    if isinstance(server_key, str) and len(server_key) == 40 and not Path(server_key).exists():
        server = server_key.encode()
    else:
        server, _ = _certificate(Path(server_key))
    public, secret = _certificate(Path(client_keys))
    if secret is None:
        raise ValueError(f"{client_keys} holds no secret key; it is the file that the server's owner gets, not yours")
    return Keys(server, public, secret)


def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no key file: {error}; make one with: animegamer-rt keys new NAME") from error
    return public, secret


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(known)}")
