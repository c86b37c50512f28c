"""CURVE keys: `animegamer-rt keys new NAME` makes a pair; the server loads its own pair and its players' public keys.

Files are in ZeroMQ's certificate format, which every ZeroMQ library reads.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.auth

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import ServerError
from animegamer_rt.untrusted import is_key, short

SERVER = "server"
KEYS = Path("keys")
PUBLIC, SECRET = ".key", ".key_secret"
MAX_NAME = 50
MAX_KEY_FILE_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Keys:
    """The server's own pair, and the public keys of the authorized players (all Z85, 40 bytes)."""

    public: bytes
    secret: bytes
    authorized: frozenset[bytes]


def new(name: str, folder: Path) -> tuple[Path, Path]:
    """Make the pair `name` in `folder`: (public file, secret file), the secret readable only by its owner.

    Raises ServerError if the pair exists or the folder cannot be written.
    """
    if not name.replace("-", "").replace("_", "").isalnum() or len(name) > MAX_NAME:
        raise ServerError(
            "not a name for a key pair", found=short(name), expected=f"letters, digits, - and _, at most {MAX_NAME}"
        )
    paths = folder / (name + PUBLIC), folder / (name + SECRET)
    for path in paths:
        if os.path.lexists(path):
            raise ServerError("the key pair exists already", where=path, do="choose another name, or delete both files")
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        zmq.auth.create_certificates(folder, name)
    except OSError as error:
        with contextlib.suppress(OSError):
            for path in paths:
                path.unlink(missing_ok=True)
        do = "make the folder writable, free disk space, or choose another folder with --keys"
        raise ServerError("the keys cannot be written", where=folder, found=error.strerror, do=do) from error
    finally:
        os.umask(before)
    return paths


def new_pair(name: str, folder: Path) -> int:
    """Make the pair `name` and print who gets each file; returns the exit code. Raises as `new` does."""
    public, secret = new(name, folder)
    if name == SERVER:
        print(f"{public}: give to every player\n{secret}: keep on the server")
    else:
        print(f"{public}: copy to the server's --authorized-keys folder")
        print(f"{secret}: give to {name} only, with the server's .key")
    return 0


def load(folder: Path | None, players: Path | None, host: str) -> Keys:
    """The server's pair and its players' keys. Raises ServerError with the commands that create what is missing."""
    folder_asked, players_asked = folder or KEYS, players or Path("players")
    ours, theirs = shlex.quote(str(folder_asked)), shlex.quote(str(players_asked))
    commands = (
        f"run: animegamer-rt keys new {SERVER} --keys {ours}; for each player: animegamer-rt keys new NAME "
        f"--keys {theirs}, and give NAME{SECRET} and {SERVER}{PUBLIC} to the player; then: animegamer-rt serve "
        f"--host {host} --keys {ours} --authorized-keys {theirs}"
    )
    secret_path = folder_asked / (SERVER + SECRET)
    if folder is None or not secret_path.is_file():
        what = f"serving on {host} needs a key pair for the server"
        raise ServerError(what, where="--keys", found="none" if folder is None else f"no {secret_path}", do=commands)
    public, secret = _read(secret_path)
    if secret is None:
        raise ServerError("not a secret key", where=secret_path, do=commands)
    if _readable_by_others(secret_path):
        do = f"run: chmod 600 {shlex.quote(str(secret_path))}"
        raise ServerError("the server's secret key is readable by others", where=secret_path, do=do)
    files = sorted(players.glob("*" + PUBLIC)) if players is not None and players.is_dir() else []
    authorized = frozenset(_read(path)[0] for path in files)
    if not authorized:
        what = f"serving on {host} needs the public keys of its players"
        raise ServerError(what, where="--authorized-keys", found=f"no *{PUBLIC} file", do=commands)
    return Keys(public, secret, authorized)


def _readable_by_others(path: Path) -> bool:
    """Whether the file's mode lets others read it. systemd's credentials are private whatever their mode."""
    if os.name != "posix" or str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY"):
        return False
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _read(path: Path) -> tuple[bytes, bytes | None]:
    do = "run: animegamer-rt keys new NAME"
    try:
        read_bounded(path, MAX_KEY_FILE_BYTES)
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ServerError(
            "not a key file", where=path, found=getattr(error, "strerror", None) or error, do=do
        ) from error
    for kind, key in (("public", public), ("secret", secret)):
        if key is not None and not is_key(key):
            found, expected = f"{len(key)} characters", "40 characters of Z85"
            raise ServerError(f"not a {kind} key", where=path, found=found, expected=expected, do=do)
    if secret is not None and zmq.curve_public(secret) != public:
        raise ServerError("the public key does not match the secret key", where=path, do=do)
    return public, secret
