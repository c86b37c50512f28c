"""The command `animegamer-rt`: its subcommands and exit codes.

Exit codes: 0 success; 1 a check failed, or stdout was closed; 2 a user error; 130 interrupted.

Each subcommand is a function that gets its parser: it adds options, or verbs by `add_subparsers`, and sets the default
`run`, which takes the parsed options and returns the exit code. Its module is imported when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from .arguments import Parser
from .bundle.config import suggest_only
from .errors import ConfigError
from .failures import output_error, output_lost, ready_streams, report
from .version import __version__

COMMAND_GROUP = "animegamer_rt.commands"
"""Entry-point group of the subcommands that other packages add."""
OWN: Mapping[str, str] = MappingProxyType(
    {
        "play": "animegamer_rt.play.command:add_play",
        "selftest": "animegamer_rt.diagnose.command:add_selftest",
        "doctor": "animegamer_rt.diagnose.command:add_doctor",
        "info": "animegamer_rt.diagnose.command:add_info",
        "serve": "animegamer_rt.serving.server.command:add_serve",
        "keys": "animegamer_rt.serving.server.command:add_keys",
    }
)
HELP: Mapping[str, str] = MappingProxyType(
    {
        "play": "play a game in the terminal, or from lines of text",
        "bench": "measure turns or the server on this machine, and read the records",
        "selftest": "compare each part with onnxruntime's on the CPU, play, write a report",
        "doctor": "check whether this machine can play, and suggest what to change",
        "info": "describe a bundle and its contents",
        "serve": "serve games to other programs over a socket",
        "keys": "make key pairs for serving to other machines",
        "build-engines": "build TensorRT engines for a bundle",
        "distill": "train a student and a light decoder for a bundle, and add them as the plan turbo",
        "export": "make a bundle from checkpoints",
        "fetch": "download the published checkpoints",
        "kiosk": "run a game on a screen for visitors",
        "parity": "compare our networks with recorded numbers of the reference",
        "quantize": "make a bundle whose parts have another precision",
        "search-plans": "find cheaper plans for a bundle and measure them",
        "shots": "play, write or compare the shots of the published scripts (mllm-output.pt)",
        "verify": "compare a bundle's parts with torch or with another bundle",
    }
)
"""Subcommand -> its line of help. Kept here because importing a subcommand may take seconds."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code. Errors that a user can fix are one line on stderr, no traceback."""
    ready_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except SystemExit:  # argparse has printed its help, or an error
        if (lost := output_error()) is not None:
            return output_lost(lost)
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  unknown ones are raised again
        return report(error)


def _run(words: list[str]) -> int:
    called = words[0] if words else ""
    try:
        options, unknown = command_parser(called).parse_known_args(words)
        if unknown:  # argparse itself would show the whole program's usage, without this command's options
            near = suggest_only(unknown[0].partition("=")[0], options.parser._option_string_actions)
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"; {near}" if near else ""))
        if "run" not in options:
            options.parser.print_help()
            return 0
        code: int = options.run(options)
    except ModuleNotFoundError as error:
        if called in OWN:
            raise
        raise ConfigError(
            f"a library needed by the command {called!r} is missing",
            found=str(error),
            do="run in the checkout: make setup, or pip install -e '.[cpu,export]'",
        ) from error
    return code


def command_parser(called: str) -> Parser:
    """The program's parser, in which only the called command has options."""
    parser = Parser(prog="animegamer-rt", description="Text in, next game state and a 17-frame clip out.")
    parser.add_argument("--version", action="version", version=f"animegamer-rt {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    added = sorted(entry_points(group=COMMAND_GROUP), key=lambda point: point.name)
    for point in (*(EntryPoint(name, where, COMMAND_GROUP) for name, where in OWN.items()), *added):
        command = commands.add_parser(point.name, help=HELP.get(point.name, ""))
        if point.name == called:
            point.load()(command)
    return parser
