"""`python -m animegamer_client`: play a game on a server from the terminal, or ask how the server is."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .client import Client
from .errors import ClientError
from .play import INTERRUPTED, PlayOptions, play
from .screen import Screen

STATUS_TIMEOUT_S = 5.0
FAILED = 2
"""Exit code where the command could not be done; 1 is a server that is not ready, or a line that was refused."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    _ready_streams()
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.server_key is None) != (options.client_keys is None):
        parser.error("--server-key and --client-keys go together: the server's public key, and the file of yours")
    try:
        code = _status(options) if options.command == "status" else _play(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever reads, as `head` does, has enough
        _mute()
        return 1
    except OSError as error:
        what = f"{error.filename}: cannot be written" if error.filename else "the output cannot be written"
        print(f"error: {what}; found {error.strerror or error}; make room, or choose another place", file=sys.stderr)
        _mute()
        return FAILED
    except (ClientError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _ready_streams() -> None:
    """Streams that were closed before we began hold nothing; what a stream has no letters for is kept or marked."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            stream.reconfigure(errors=errors)


def _mute() -> None:
    """Let go of standard output: what is still buffered would fail once more when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _play(options: argparse.Namespace) -> int:
    asked = PlayOptions(
        options.address,
        options.seed,
        options.resume,
        options.out,
        options.timeout,
        options.server_key,
        options.client_keys,
    )
    return play(asked)


def _status(options: argparse.Namespace) -> int:
    """Print how the server is; 0 if it is ready."""
    client = Client(
        options.address,
        timeout_s=options.timeout,
        server_key=options.server_key,
        client_keys=options.client_keys,
    )
    try:
        status = client.status()
    finally:
        client.close()
    if options.json:
        print(json.dumps(status, indent=2))
    else:
        Screen().status(status)
    return 0 if status.get("state") == "ready" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("animegamer_client", description="Play AnimeGamer games on a server.")
    parser.add_argument("--version", action="version", version=f"animegamer-client {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("play", help="play a game in the terminal; or the instructions on stdin, a line each")
    asked.add_argument("--seed", type=int, help="seed of a new game (default: the server draws one)")
    asked.add_argument("--resume", metavar="TOKEN", help="go on with an earlier game")
    asked.add_argument("--out", type=Path, metavar="DIR", help="clips and contact sheet (default: games/game-NNN)")
    status = commands.add_parser("status", help="how the server is; exit code 0 if it is ready")
    status.add_argument("--json", action="store_true", help="all of it, as JSON")
    for command, timeout_s in ((asked, 30.0), (status, STATUS_TIMEOUT_S)):
        command.add_argument("address", metavar="ADDRESS", help="of the server, as tcp://127.0.0.1:5570")
        command.add_argument("--timeout", type=float, default=timeout_s, metavar="S", help="patience with silence")
        command.add_argument("--server-key", metavar="KEY", help="the server's public key, or its file")
        command.add_argument("--client-keys", metavar="FILE", help="your secret key's file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
