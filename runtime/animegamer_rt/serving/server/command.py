"""`animegamer-rt serve`, `keys new` and `sessions backup`: their options.

What a command needs is imported when it runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from animegamer_rt.engine_config import add_bundle_options, add_engine_options

from .options import ServeOptions, add_options, from_arguments


def add_serve(serve: argparse.ArgumentParser) -> None:
    """`animegamer-rt serve`."""
    serve.set_defaults(run=_serve)
    add_bundle_options(serve)
    add_engine_options(serve, simulated=True)
    add_options(serve)


def add_keys(keys: argparse.ArgumentParser) -> None:
    """`animegamer-rt keys`."""
    new = keys.add_subparsers(required=True).add_parser("new", help="make a key pair")
    new.set_defaults(run=_new_keys)
    new.add_argument("name", help="server, or a player's name: the files are NAME.key and NAME.key_secret")
    new.add_argument("--keys", type=Path, default=Path("keys"), metavar="DIR", help="their folder (default: keys)")


def add_sessions(sessions: argparse.ArgumentParser) -> None:
    """`animegamer-rt sessions`."""
    what = "copy the sessions into a new folder, and check the copy"
    backup = sessions.add_subparsers(required=True).add_parser("backup", help=what)
    backup.set_defaults(run=_back_up)
    backup.add_argument("folder", metavar="NEW_DIR", help="the copy, which serve --state-dir plays")
    state_dir = ServeOptions().state_dir
    backup.add_argument(
        "--state-dir", type=Path, default=state_dir, metavar="DIR", help="as in serve (default: %(default)s)"
    )


def _serve(options: argparse.Namespace) -> int:
    from .server import serve

    return serve(from_arguments(options))


def _new_keys(options: argparse.Namespace) -> int:
    from .curve_keys import new_pair

    return new_pair(options.name, options.keys)


def _back_up(options: argparse.Namespace) -> int:
    from animegamer_rt.serving.store.backup import backup_command

    return backup_command(options.folder, options.state_dir)
