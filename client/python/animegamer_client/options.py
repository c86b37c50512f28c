"""The client's options: the server's address, the form of the pictures, and keys. Checked before a socket is opened."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

import zmq
import zmq.auth
from zmq.utils import z85

from .codec import MAJOR, MINOR, Message

_HOST = r"\w(?:[\w.-]*\w)?|\[[0-9A-Fa-f:.]+(?:%\w+)?\]"
"""A name or an IPv4 address; or an IPv6 address in brackets."""

CLIENT_NAME = "animegamer-client (python)"
PIXEL_FORMATS = ("rgb24", "rgba32", "bgra32")
CODECS = ("raw", "jpeg", "mp4")


@dataclass(frozen=True, slots=True)
class Keys:
    """CURVE keys, 40 characters of Z85 each. The secret one is left out of `repr`."""

    server: bytes
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"Keys(server={self.server!r}, public={self.public!r})"


@dataclass(frozen=True, slots=True)
class Options:
    """The form of the pictures, as in `hello`. Raises ValueError for a value that the protocol does not have."""

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
        """The first message on each connection, with these options."""
        return Message("hello", {"versions": [MAJOR], "client": CLIENT_NAME, **asdict(self), "minor": MINOR})


def addresses(address: str) -> tuple[str, str]:
    """The addresses of a server's turn port and control port (the next one). Raises ValueError."""
    found = re.fullmatch(rf"(?:tcp://)?({_HOST}):([0-9]{{1,5}})", address, re.ASCII)
    port = int(found[2]) if found else 0
    if found is None or not 1 <= port <= 65534:
        raise ValueError(
            f"{address!r} is not the address of a server; expected tcp://HOST:PORT, as in tcp://127.0.0.1:5570"
        )
    return f"tcp://{found[1]}:{port}", f"tcp://{found[1]}:{port + 1}"


def read_keys(server_key: str | os.PathLike[str] | None, client_keys: str | os.PathLike[str] | None) -> Keys | None:
    """The keys for a server on another machine; None if neither is given.

    server_key: the server's public key, or its file. client_keys: the file of this client's secret key.
    Raises ValueError if only one is given, or a file holds no key.
    """
    if server_key is None and client_keys is None:
        return None
    if server_key is None or client_keys is None:
        raise ValueError(
            "server_key and client_keys go together: give the server's public key, and the file of your secret key"
        )
    if isinstance(server_key, str) and len(server_key) == 40 and not Path(server_key).exists():
        server = _key(server_key.encode(errors="replace"), "server_key")
    else:
        server, _ = _certificate(Path(server_key))
    public, secret = _certificate(Path(client_keys))
    if secret is None:
        raise ValueError(f"{client_keys} holds no secret key; give the file that ends in .key_secret")
    return Keys(server, public, secret)


def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a key file: {error}; make one with: animegamer-rt keys new NAME") from error
    return _key(public, str(path)), None if secret is None else _key(secret, str(path))


def _key(text: bytes, where: str) -> bytes:
    """The key, if it is one: 40 characters of Z85 for 32 bytes. Raises ValueError, which does not show the key."""
    try:
        if len(text) == 40 and z85.encode(z85.decode(text)) == text:
            return text
    except (ValueError, KeyError, struct.error):
        pass
    raise ValueError(
        f"{where} holds no key; found {len(text)} characters, expected 40 of Z85; "
        "copy the whole file, or make one with: animegamer-rt keys new NAME"
    )


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(known)}")
