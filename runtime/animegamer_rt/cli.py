"""The command `animegamer-rt`: options, subcommands, exit codes.

Exit codes: 0 success; 1 a check failed, or stdout was closed; 2 a user error; 130 interrupted.

Parses options and calls the subcommand, whose module is imported only then.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType

from . import __version__
from .arguments import Parser, whole
from .bench.presets import FORMATS, ONE_GAME, PRESETS, SUITE_GAMES, TIMED
from .completion import NAMES, SHELLS
from .engine_config import EngineConfig, add_engine_options
from .errors import ConfigError
from .failures import output_error, output_lost, ready_streams, report

COMMAND_GROUP = "animegamer_rt.commands"
"""Entry-point group of the subcommands that other packages add: a function that takes argv and returns an exit code."""
ADDED: Mapping[str, str] = MappingProxyType(
    {
        "evaluate": "measure a bundle without labels: its state, its clips, its plans",
        "export": "make a bundle from checkpoints; export tensorrt: make engines from a bundle",
        "fetch": "download the published checkpoints",
        "kiosk": "put a game on a screen for visitors, and keep it running",
        "parity": "compare our networks with recorded numbers of the reference",
        "quantize": "make a bundle whose parts have another precision",
        "search-plans": "find cheaper plans for a bundle and measure them",
        "verify": "compare a bundle's parts with torch or with another bundle",
    }
)
"""Help of the subcommands of other packages, which may take seconds to import."""
BUNDLE_HELP = "name, folder, or hf:owner/name@revision (default: pocket)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code. What a user can fix is one line on stderr, without a traceback."""
    ready_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except SystemExit:  # argparse has printed its help, or an error
        if (lost := output_error()) is not None:
            return output_lost(lost)
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  an unknown one is raised again
        return report(error)


def _run(arguments: list[str]) -> int:
    added = {point.name: point for point in entry_points(group=COMMAND_GROUP)}
    if arguments and arguments[0] in added:
        return _run_added(added[arguments[0]], arguments[1:])
    parser = _parser(sorted(added))
    options, unknown = parser.parse_known_args(arguments)
    if unknown:  # argparse itself would show the usage of the whole program, without this command's options
        getattr(options, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    code: int = options.run(options)
    return code


def _further(added: list[str]) -> str | None:
    lines = [f"  {name:<14}{ADDED.get(name, '')}".rstrip() for name in added]
    return "\n".join(["further commands, each with its own --help:", *lines]) if lines else None


def _parser(added: list[str]) -> argparse.ArgumentParser:
    from .serving.server.options import add_options as add_serve_options
    from .serving.server.options import add_sessions_options

    parser = Parser(
        prog="animegamer-rt",
        description="Text in, next game state and a 17-frame clip out.",
        epilog=_further(added),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"animegamer-rt {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    play = commands.add_parser("play", help="play a game in the terminal, or from lines of text")
    play.set_defaults(run=_play)
    _add_play_options(play)

    bench = commands.add_parser(
        "bench",
        help="measure turns by stage, or the server, on this machine",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["what is timed:", *map(_indented, (TIMED, ONE_GAME, SUITE_GAMES))]),
    )
    bench.set_defaults(run=_bench)
    _add_bench_options(bench)

    selftest = commands.add_parser("selftest", help="compare each part with recorded outputs, play, write a report")
    selftest.set_defaults(run=_selftest)
    selftest.add_argument("--bundle", default="pocket", help=BUNDLE_HELP)
    add_engine_options(selftest)
    selftest.add_argument("--out", type=Path, default=Path("selftest.json"), metavar="FILE", help="the report")
    selftest.add_argument("--record", action="store_true", help="record the outputs beside the bundle instead")

    doctor = commands.add_parser("doctor", help="check whether this machine can play, and say what to change")
    doctor.set_defaults(run=_doctor)
    doctor.add_argument("--bundle", default="pocket", help=BUNDLE_HELP)
    doctor.add_argument("--json", action="store_true", help="print JSON")

    serve = commands.add_parser("serve", help="serve games to other programs over a socket")
    serve.set_defaults(run=_serve)
    _add_bundle(serve)
    add_engine_options(serve, simulated=True)
    add_serve_options(serve)

    curve_keys = commands.add_parser("keys", help="make the keys for serving to other machines")
    curve_keys.set_defaults(run=_new_keys)
    curve_keys.add_argument("action", choices=("new",), help="make a key pair")
    curve_keys.add_argument("name", help="server, or a player's name: the files are NAME.key and NAME.key_secret")
    curve_keys.add_argument(
        "--keys", type=Path, default=Path("keys"), metavar="DIR", help="their folder (default: keys)"
    )

    sessions = commands.add_parser("sessions", help="back up the sessions of a server, also while it runs")
    sessions.set_defaults(run=_sessions)
    add_sessions_options(sessions)

    bundle_info = commands.add_parser("info", help="show what a bundle is and holds")
    bundle_info.set_defaults(run=_info)
    bundle_info.add_argument("bundle", nargs="?", default="pocket", help=BUNDLE_HELP)
    bundle_info.add_argument("--json", action="store_true", help="print the whole manifest as JSON")
    bundle_info.add_argument("--list", action="store_true", help="list the bundles that are found by name")
    completion = commands.add_parser("completion", help="print a script that completes commands in bash or zsh")
    completion.set_defaults(run=_completion, added=added)
    completion.add_argument("shell", choices=(*SHELLS, *NAMES), metavar="{bash,zsh}", help="the shell")
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    for name in added:
        commands.add_parser(name, add_help=False)  # so that the error for an unknown command lists them
    return parser


def _indented(text: str) -> str:
    return textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  ")


def _add_bundle(command: argparse.ArgumentParser) -> None:
    command.add_argument("--bundle", default="pocket", help=BUNDLE_HELP)
    command.add_argument("--plan", help="exact, balanced or fast (default: the bundle's default)")


def _add_play_options(play: argparse.ArgumentParser) -> None:
    _add_bundle(play)
    play.add_argument(
        "--instructions",
        metavar="FILE",
        help="play the lines of this file, one turn each, instead of asking; -: standard input; #: a comment",
    )
    play.add_argument(
        "--seed",
        type=whole(0, 2**63 - 1),
        help="the same bundle, plan, device, seed and instructions give the same frames (default: random)",
    )
    play.add_argument("--out", type=Path, metavar="DIR", help="folder of the game (default: the next games/game-NNN)")
    play.add_argument(
        "--history-turns",
        type=whole(0, 64),
        metavar="TURNS",
        help="how many earlier turns the model sees (default: the bundle's)",
    )
    play.add_argument("--image", type=Path, metavar="FILE", help="start from this picture; needs --motion")
    play.add_argument(
        "--motion", type=str, metavar="TEXT", help="what happens in the picture, for example 'gently wave'"
    )
    add_engine_options(play, simulated=True)
    play.add_argument("--fps", type=whole(1, 120), help="frames per second of the clips (default: the bundle's)")
    play.add_argument(
        "--scale", type=whole(1, 16), help="enlarge clips by this factor (default: 4 for pocket, 1 for full size)"
    )
    play.add_argument("--no-preview", action="store_true", help="do not show the clip in the terminal")


def _play(options: argparse.Namespace) -> int:
    from .play.command import PlayOptions, play

    return play(
        PlayOptions(
            bundle=options.bundle,
            plan=options.plan,
            seed=options.seed,
            out=options.out,
            history_turns=options.history_turns,
            fps=options.fps,
            scale=options.scale,
            instructions=options.instructions,
            preview=not options.no_preview,
            engines=EngineConfig.from_arguments(options),
            image=options.image,
            motion=options.motion,
        )
    )


def _add_bench_options(bench: argparse.ArgumentParser) -> None:
    bench.add_argument(
        "what",
        nargs="?",
        choices=("run", "serve", "compare", "verify", "show", "pack"),
        default="run",
        metavar="{run,serve,compare,verify,show,pack}",
        help="turns alone, the server, two records side by side, check records, print them, or pack one to share "
        "(default: run)",
    )
    bench.add_argument(
        "records",
        nargs="*",
        type=Path,
        metavar="RECORD",
        help="of compare: two files of --results; of verify and show: any number; of pack: one",
    )
    bench.add_argument("--json", action="store_true", help="of compare: print JSON")
    bench.add_argument("--format", choices=FORMATS, help="of show (default: md)")
    bench.add_argument("--suite", type=whole(1, 99), help="a frozen suite, for figures to cite; 10 minutes a plan")
    bench.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="named settings to cite and repeat; --bundle, --plan and --turns change them (docs: benchmarks/README.md)",
    )
    _add_bundle(bench)
    bench.set_defaults(bundle=None)
    add_engine_options(bench)
    bench.add_argument(
        "--turns", type=whole(1, 10_000), help="turns of each measurement (default: 15 of run, 25 of serve)"
    )
    bench.add_argument(
        "--results",
        type=Path,
        default=None,
        metavar="DIR",
        help="where the record goes (default: animegamer-rt/bench in the user's data folder; of pack: this folder)",
    )
    bench.add_argument("--trace", type=Path, metavar="FILE", help="the median turn as JSON, for ui.perfetto.dev")
    bench.add_argument(
        "--replay", type=Path, metavar="GAME", help="of serve: a folder of `play`, played again with its think times"
    )


def _bench(options: argparse.Namespace) -> int:
    from .bench.dispatch import dispatch

    return dispatch(options)


def _selftest(options: argparse.Namespace) -> int:
    from .diagnose.selftest import selftest

    return selftest(options.bundle, EngineConfig.from_arguments(options), options.out, options.record)


def _doctor(options: argparse.Namespace) -> int:
    from rich.console import Console

    from .diagnose.doctor import doctor

    return doctor(options.bundle, options.json, Console())


def _serve(options: argparse.Namespace) -> int:
    from .serving.server.options import from_arguments
    from .serving.server.server import serve

    return serve(from_arguments(options))


def _new_keys(options: argparse.Namespace) -> int:
    from .serving.server.curve_keys import new_pair

    return new_pair(options.name, options.keys)


def _sessions(options: argparse.Namespace) -> int:
    from .serving.store.backup import backup_command

    return backup_command(options.folder, options.state_dir)


def _info(options: argparse.Namespace) -> int:
    from rich.console import Console

    from .bundle import loader as bundle
    from .diagnose import bundle_info

    if options.list:
        bundle_info.list_bundles(Console())
    elif options.json:
        print(bundle_info.as_json(bundle.open_bundle(options.bundle)))
    else:
        bundle_info.print_bundle(bundle.open_bundle(options.bundle), Console())
    return 0


def _completion(options: argparse.Namespace) -> int:
    from .completion import names, script

    if options.shell in NAMES:  # the script asks
        print("\n".join(names(options.shell)))
    else:
        added = {name: ADDED.get(name, "") for name in options.added}
        print(script(_parser(options.added), added, options.shell))
    return 0


def _run_added(point: EntryPoint, arguments: list[str]) -> int:
    try:
        code: int = point.load()(arguments)  # the command itself imports what it needs
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the command {point.name!r} lacks a library",
            found=str(error),
            do="run in the checkout: make setup, or pip install -e '.[cpu,export]'",
        ) from error
    return code
