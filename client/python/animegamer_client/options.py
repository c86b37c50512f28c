"""The client's options: the server's address, the picture format, and keys. Checked before a socket is opened."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
from dataclasses import asdict, dataclass

import zmq
import zmq.auth

from .codec import MAJOR, MINOR, Message

CLIENT_NAME = "animegamer-client (python)"
PIXEL_FORMATS = ("rgb24", "rgba32", "bgra32")
CODECS = ("raw", "jpeg", "mp4")
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
KEY_CHARACTERS, MAX_KEY_FILE_BYTES = 40, 64 * 2**10
MAX_PICTURE_BYTES = 8 * 2**20
NEW_KEYS = "create one with: animegamer-rt keys new NAME"


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
    """The picture format, as in `hello`. Raises ValueError for a value that the protocol does not have."""

    pixel_format: str = "rgb24"
    flip: bool = False
    codec: str = "raw"
    jpeg_quality: int = 90
    clip: bool = False

    def __post_init__(self) -> None:
        _one_of("pixel_format", self.pixel_format, PIXEL_FORMATS)
        _one_of("codec", self.codec, CODECS)
        for name, value in (("flip", self.flip), ("clip", self.clip)):
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r:.60}; expected True or False")
        if type(self.jpeg_quality) is not int or not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"jpeg_quality is {self.jpeg_quality!r:.60}; expected a whole number, 1..100")

    def hello(self) -> Message:
        """The first message on each connection, with these options."""
        return Message("hello", {"versions": [MAJOR], "client": CLIENT_NAME, **asdict(self), "minor": MINOR})


def addresses(address: str) -> tuple[str, str]:
    """The addresses of a server's turn port and control port (the next one). Raises ValueError."""
    found = re.fullmatch(r"(?:tcp://)?(.{1,300}):([0-9]{1,5})", address) if isinstance(address, str) else None
    port = int(found[2]) if found else 0
    if found is None or not 1 <= port <= 65534 or not _is_host(found[1]):
        raise ValueError(
            f"{address!r} is not a server's address; expected tcp://HOST:PORT, such as tcp://127.0.0.1:5570"
        )
    return f"tcp://{found[1]}:{port}", f"tcp://{found[1]}:{port + 1}"


def read_keys(server_key: str | os.PathLike[str] | None, client_keys: str | os.PathLike[str] | None) -> Keys | None:
    """The keys for a server on another machine; None if neither is given.

    server_key: the server's public key, or its file. client_keys: the file of this client's secret key.
    Raises ValueError if only one is given, or a file contains no key.
    """
    if server_key is None and client_keys is None:
        return None
    if server_key is None or client_keys is None:
        raise ValueError(
            "server_key and client_keys go together: give the server's public key, and the file of your secret key"
        )
    if isinstance(server_key, str) and is_key(server_key) and not os.path.exists(server_key):
        server = server_key.encode()
    else:
        server, _ = _certificate(server_key)
    public, secret = _certificate(client_keys)
    if secret is None:
        raise ValueError(f"{client_keys} contains no secret key; give the file that ends in .key_secret")
    if zmq.curve_public(secret) != public:
        raise ValueError(f"{client_keys}: its public key does not match its secret key; {NEW_KEYS}")
    return Keys(server, public, secret)


def read_picture(picture: str | os.PathLike[str] | bytes | None, motion: str | None) -> bytes | None:
    """The bytes of the picture to start from; None: no picture.

    Raises ValueError if it has the wrong type, no motion, or is too large, OSError if the file cannot be read.
    """
    if (picture is None) != (motion is None):
        raise ValueError("picture and motion go together: give a picture, and what happens in it ('gently wave')")
    if picture is None:
        return None
    if isinstance(picture, bytes):
        content = picture
    elif isinstance(picture, (str, os.PathLike)):  # a number would be a file descriptor, and be closed
        if os.path.exists(picture) and not os.path.isfile(picture):  # reading a pipe would block
            raise OSError(errno.EINVAL, "Not a regular file", os.fspath(picture))
        with open(picture, "rb") as file:
            content = file.read(MAX_PICTURE_BYTES + 1)
    else:
        raise ValueError(f"the picture is a {type(picture).__name__}; expected a path, or a file's bytes")
    if len(content) > MAX_PICTURE_BYTES:
        raise ValueError(f"the picture is larger than {MAX_PICTURE_BYTES // 2**20} MiB; make it smaller")
    return content


def is_key(text: str | bytes) -> bool:
    """Whether this is a CURVE key in Z85: 40 characters that stand for 32 bytes."""
    characters = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if len(characters) != KEY_CHARACTERS or set(characters) - set(Z85):
        return False
    groups = (characters[at : at + 5] for at in range(0, KEY_CHARACTERS, 5))
    return all(sum(Z85.index(one) * 85 ** (4 - k) for k, one in enumerate(group)) < 2**32 for group in groups)


def _certificate(path: str | os.PathLike[str]) -> tuple[bytes, bytes | None]:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_KEY_FILE_BYTES:
            raise ValueError("no such file, or too large for a key")
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{ascii(os.fspath(path))} is not a key or a key file: {error}; {NEW_KEYS}") from error
    if not is_key(public) or not (secret is None or is_key(secret)):
        raise ValueError(f"{path} contains a key that is not {KEY_CHARACTERS} characters of Z85; {NEW_KEYS}")
    return public, secret


def _is_host(host: str) -> bool:
    """Whether this is the name of a host, an IPv4 address, or an IPv6 address in brackets."""
    if host.startswith("["):
        return host.endswith("]") and _is_ipv6(host[1:-1])
    labels = host.removesuffix(".").split(".")
    if all(label.isascii() and label.isdigit() for label in labels):
        return len(labels) == 4 and all(len(label) <= 3 and int(label) <= 255 for label in labels)
    return all(re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", label) for label in labels)


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or re.fullmatch(r"[A-Za-z0-9._-]{1,32}", zone) is not None


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r:.60}; expected one of {', '.join(known)}")
