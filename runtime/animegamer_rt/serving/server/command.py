"""Options of `animegamer-rt serve` and `keys new`. Commands import what they need when they run."""

from __future__ import annotations

import argparse
import textwrap
import typing
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from animegamer_rt.engine_config import add_engine_options

from .config_file import ENGINES, print_config, read_config
from .options import FIELDS, ServeOptions, check, check_values

COMMAND_LINE = (
    *("bundle", "plan", "host", "port", "state_dir", "keys", "authorized_keys", "workers", "ray"),
    *("web", "web_password", "ahead", "parent"),
)
"""Settings that are also command-line options. The others are only in the file."""


def add_serve(serve: argparse.ArgumentParser) -> None:
    """`animegamer-rt serve`."""
    serve.set_defaults(run=_serve)
    hints = typing.get_type_hints(ServeOptions)
    for name in COMMAND_LINE:
        field, option = FIELDS[name], _option(name)
        kind: Any = next(one for one in (*typing.get_args(hints[name]), hints[name]) if one is not NoneType)
        meaning = field.metadata["meaning"]
        if kind is str:
            kind = None  # a text that is not empty
        if kind is bool:
            serve.add_argument(option, action="store_true", default=None, help=meaning)
            continue
        default = f" (default: {field.default})" if field.default else ""
        metavar = field.metadata.get("metavar")
        serve.add_argument(option, type=kind, metavar=metavar, help=meaning + default)
    add_engine_options(serve, simulated=True)
    serve.set_defaults(device=None)
    serve.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; options given here override it")
    what = "print all settings as a config file, and exit"
    serve.add_argument("--print-config", action="store_true", help=what)
    others = ", ".join(name for name in FIELDS if name not in (*COMMAND_LINE, "engines"))
    serve.epilog = textwrap.fill(f"Only in the file: {others}. See docs/SERVER.md.", 78)


def serve_options(arguments: argparse.Namespace) -> ServeOptions:
    """The settings of a command line and its file. Raises ConfigError."""
    options = ServeOptions() if arguments.config is None else read_config(arguments.config)
    given, engines = (
        {name: value for name in names if (value := getattr(arguments, name)) is not None}
        for names in (COMMAND_LINE, ENGINES)
    )
    options = replace(options, engines=replace(options.engines, **engines), **given)
    check_values(options, given, _option)
    check(options)
    return options


def add_keys(keys: argparse.ArgumentParser) -> None:
    """`animegamer-rt keys`."""
    new = keys.add_subparsers(required=True).add_parser("new", help="make a key pair")
    new.set_defaults(run=_new_keys)
    new.add_argument("name", help="server, or a player's name; writes NAME.key and NAME.key_secret")
    new.add_argument("--keys", type=Path, default=Path("keys"), metavar="DIR", help="folder for them (default: keys)")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _serve(arguments: argparse.Namespace) -> int:
    options = serve_options(arguments)
    if arguments.print_config:
        print(print_config(options), end="")
        return 0
    from .server import serve

    return serve(options)


def _new_keys(options: argparse.Namespace) -> int:
    from .curve_keys import new_pair

    return new_pair(options.name, options.keys)
