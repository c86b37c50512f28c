"""`python -m animegamer_client`: play a game on a server from the terminal, or print the server's status."""

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
from .terminal_view import TerminalView

STATUS_TIMEOUT_S = 5.0
FAILED = 2
"""Exit code if the command could not run. 1: the server is not ready, or it refused a line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    _prepare_streams()
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.server_key is None) != (options.client_keys is None):
        parser.error(
            "--server-key and --client-keys go together: give the server's public key, and the file of your secret key"
        )
    try:
        code = _status(options) if options.command == "status" else _play(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
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


def _prepare_streams() -> None:
    """Open the null device for a stream that is closed; replace characters that a stream cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            stream.reconfigure(errors=errors)


def _mute() -> None:
    """Send stdout to the null device: what is still buffered would fail again when Python exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _play(options: argparse.Namespace) -> int:
    return play(
        PlayOptions(
            address=options.address,
            seed=options.seed,
            resume=options.resume,
            out=options.out,
            timeout_s=options.timeout,
            server_key=options.server_key,
            client_keys=options.client_keys,
        )
    )


def _status(options: argparse.Namespace) -> int:
    """Print the server's status; returns 0 if it is ready, else 1."""
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
        TerminalView().status(status)
    return 0 if status.get("state") == "ready" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("animegamer_client", description="Play games on an AnimeGamer server.")
    parser.add_argument("--version", action="version", version=f"animegamer-client {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    game = commands.add_parser("play", help="play a game in the terminal, or the instructions on stdin, one a line")
    game.add_argument("--seed", type=int, help="seed of a new game (default: the server chooses one)")
    game.add_argument("--resume", metavar="TOKEN", help="continue an earlier game")
    game.add_argument("--out", type=Path, metavar="DIR", help="folder for the clips (default: games/game-NNN)")
    status = commands.add_parser("status", help="print the server's status; exit code 0 if it is ready")
    status.add_argument("--json", action="store_true", help="print all fields, as JSON")
    for command, timeout_s in ((game, 30.0), (status, STATUS_TIMEOUT_S)):
        command.add_argument("address", metavar="ADDRESS", help="the server's address, as tcp://127.0.0.1:5570")
        command.add_argument(
            "--timeout", type=float, default=timeout_s, metavar="S", help="seconds to wait for an answer"
        )
        command.add_argument("--server-key", metavar="KEY", help="the server's public key, or its file")
        command.add_argument("--client-keys", metavar="FILE", help="the file of your secret key")
    return parser


if __name__ == "__main__":
    sys.exit(main())
