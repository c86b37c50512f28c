"""`python -m animegamer_client`: play a game on a server from the terminal, or ask how the server is."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .client import Client
from .errors import ClientError
from .play import INTERRUPTED, PlayOptions, play
from .screen import Screen

STATUS_TIMEOUT_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    options = _parser().parse_args(argv)
    try:
        return _status(options) if options.command == "status" else _play(options)
    except (ClientError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


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
