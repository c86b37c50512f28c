"""`python -m animegamer_client`: play a game on a server from the terminal, or print the server's status."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .client import Client
from .errors import ClientError
from .play import INTERRUPTED, plain, play, print_plain

FAILED = 2
"""Exit code if the command could not run. 1: the server is not ready, or it refused a line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper) and not stream.closed:
            stream.reconfigure(errors=errors)
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command == "play" and options.resume is not None and options.seed is not None:
        parser.error("--seed starts a new game, and --resume continues one: use only one of them")
    try:
        code = _status(options) if options.command == "status" else _play(options)
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.filename is not None:
            do = "free disk space, or choose another place"
            _print_error(f"{error.filename}: cannot be written; found {error.strerror}; {do}")
            return FAILED
        # Its buffered rest would fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # its reader has closed the pipe, as `head` does
            return 1
        _print_error(f"the output cannot be written; found {error.strerror}; free disk space, or choose another place")
        return FAILED
    except (ClientError, ValueError) as error:
        _print_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed terminal takes both streams with it
        print(f"error: {plain(text)}", file=sys.stderr)


def _play(options: argparse.Namespace) -> int:
    keys = (("--server-key", options.server_key), ("--client-keys", options.client_keys))
    key_options = "".join(f" {name} {shlex.quote(value)}" for name, value in keys if value is not None)
    with _client(options, codec="mp4") as client:
        return play(client, options.seed, options.resume, options.out, key_options)


def _status(options: argparse.Namespace) -> int:
    """Print the server's status; returns 0 if it is ready, else 1."""
    client = _client(options, codec="raw")
    try:
        status = client.status()
    finally:
        client.close()
    if options.json:
        print(json.dumps(status, indent=2))
    else:
        print_plain("\n".join(_status_lines(status)))
    return 0 if status.get("state") == "ready" else 1


def _status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    worker = status.get("worker", {})
    turns = f"{status.get('turns_done')} done, {status.get('running')} running, {status.get('queue')} waiting"
    yield f"state     {status.get('state')}"
    yield f"bundle    {status.get('bundle')}, plan {status.get('plan')}"
    yield f"server    {status.get('version')}, up {status.get('uptime_s', 0):.0f} s"
    yield f"turns     {turns}"
    yield f"sessions  {status.get('sessions')} open, {status.get('connections')} connected"
    yield f"worker    {worker.get('state')}, {worker.get('restarts')} restarts"
    if worker.get("last_error"):
        yield f"          last error: {worker['last_error']}"
    medians = [f"{stage} {seconds:.2f}" for stage, seconds in status.get("seconds", {}).items()]
    if medians:
        yield f"seconds   {', '.join(medians)}  (medians of the last turns)"


def _client(options: argparse.Namespace, codec: str) -> Client:
    keys = {"server_key": options.server_key, "client_keys": options.client_keys}
    return Client(options.address, timeout_s=options.timeout, codec=codec, **keys)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("animegamer_client", description="Play games on an AnimeGamer server.")
    parser.add_argument("--version", action="version", version=f"animegamer-client {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    game = commands.add_parser("play", help="play a game in the terminal, or the instructions on stdin, one per line")
    game.add_argument("--seed", type=int, help="seed of a new game (default: the server chooses one)")
    game.add_argument("--resume", metavar="TOKEN", help="continue an earlier game")
    game.add_argument("--out", type=Path, metavar="DIR", help="folder for the clips (default: games/game-NNN)")
    status = commands.add_parser("status", help="print the server's status; exit code 0 if it is ready")
    status.add_argument("--json", action="store_true", help="print all fields as JSON")
    for command, timeout_s in ((game, 30.0), (status, 5.0)):
        command.add_argument("address", metavar="ADDRESS", help="the server's address, such as tcp://127.0.0.1:5570")
        command.add_argument(
            "--timeout", type=float, default=timeout_s, metavar="S", help="time limit for an answer, in seconds"
        )
        command.add_argument("--server-key", metavar="KEY", help="the server's public key, or its file")
        command.add_argument("--client-keys", metavar="FILE", help="the file with your secret key")
    return parser


if __name__ == "__main__":
    sys.exit(main())
