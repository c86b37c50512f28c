"""CURVE key pairs: made by `animegamer-rt keys new NAME`, read by the server, and the allow-list of clients' keys.

Knows files in ZeroMQ's certificate format, which every ZeroMQ library reads; nothing of sockets.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.auth

from animegamer_rt.errors import ServerError

SERVER = "server"
KEYS = Path("keys")
PUBLIC, SECRET = ".key", ".key_secret"


@dataclass(frozen=True, slots=True)
class Keys:
    """The server's own pair, and the public keys of the clients it lets in (all Z85, 40 bytes)."""

    public: bytes
    secret: bytes
    allowed: frozenset[bytes]


def new(name: str, folder: Path) -> tuple[Path, Path]:
    """Make the pair `name` in `folder`: (public file, secret file), the secret readable by its owner only.

    Raises ServerError when there is such a pair already or the folder cannot be written.
    """
    if not name.replace("-", "").replace("_", "").isalnum():
        raise ServerError("not a name for keys", found=repr(name), expected="letters, digits, - and _")
    paths = folder / (name + PUBLIC), folder / (name + SECRET)
    for path in paths:
        if path.exists():
            raise ServerError("there are keys of that name", where=path, do="choose another name, or remove both files")
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        zmq.auth.create_certificates(folder, name)
    except OSError as error:
        do = "make the folder writable, or give another with --keys"
        raise ServerError("the keys cannot be written", where=folder, found=error.strerror, do=do) from error
    finally:
        os.umask(before)
    return paths


def load(folder: Path | None, allow: Path | None, host: str) -> Keys:
    """The server's pair and its allow-list. Raises ServerError that says which commands make what is missing."""
    folder_asked, allow_asked = folder or KEYS, allow or Path("allow")
    commands = (
        f"run: animegamer-rt keys new {SERVER} --keys {folder_asked}; for each player: animegamer-rt keys new NAME "
        f"--keys {allow_asked}, and give NAME{SECRET} and {SERVER}{PUBLIC} to the player; then: animegamer-rt serve "
        f"--host {host} --keys {folder_asked} --authorized-keys {allow_asked}"
    )
    secret_path = folder_asked / (SERVER + SECRET)
    if folder is None or not secret_path.is_file():
        what = f"serving on {host} needs a key pair of the server"
        raise ServerError(what, where="--keys", found="none" if folder is None else f"no {secret_path}", do=commands)
    public, secret = _read(secret_path)
    if secret is None:
        raise ServerError("not a secret key", where=secret_path, do=commands)
    if os.name == "posix" and secret_path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ServerError(
            "others can read the server's secret key", where=secret_path, do=f"run: chmod 600 {secret_path}"
        )
    files = sorted(allow.glob("*" + PUBLIC)) if allow is not None and allow.is_dir() else []
    allowed = frozenset(_read(path)[0] for path in files)
    if not allowed:
        what = f"serving on {host} needs the keys of the players who may come in"
        raise ServerError(what, where="--authorized-keys", found=f"no *{PUBLIC} file", do=commands)
    return Keys(public, secret, allowed)


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ServerError(
            "not a key file", where=path, found=str(error), do="run: animegamer-rt keys new NAME"
        ) from error
