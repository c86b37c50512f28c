"""`animegamer-rt bench run|serve|compare`: the options of each.

Code that plays turns is imported when a verb runs, so that `bench compare` loads no engine.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from animegamer_rt.arguments import whole
from animegamer_rt.engine_config import EngineConfig, add_bundle_options, add_engine_options
from animegamer_rt.errors import ConfigError

from .compare import compare
from .suites import ONE_GAME, SUITE_GAMES, TIMED, TURNS, load_suite, results_folder


def add_bench(bench: argparse.ArgumentParser) -> None:
    """`animegamer-rt bench`."""
    verbs = bench.add_subparsers(required=True)

    run = verbs.add_parser(
        "run",
        help="measure turns by stage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["what is timed:", *map(_indented, (TIMED, ONE_GAME, SUITE_GAMES))]),
    )
    run.set_defaults(run=_run)
    add = run.add_argument
    add("--suite", type=whole(1, 99), help="run a frozen suite, for citable figures; 10 minutes per plan")
    add_bundle_options(run)
    add_engine_options(run)
    add("--turns", type=whole(1, 10_000), help=f"turns to measure (default: {TURNS})")
    _add_results(run)

    serve = verbs.add_parser("serve", help="measure the server")
    serve.set_defaults(run=_serve)
    add_bundle_options(serve)
    serve.add_argument(
        "--turns", type=whole(1, 10_000), default=25, help="turns per measurement (default: %(default)s)"
    )
    serve.add_argument("--workers", type=whole(1, 64), default=1, help="of each server (default: %(default)s)")
    _add_results(serve)

    two = verbs.add_parser("compare", help="compare two records")
    two.set_defaults(run=lambda options: compare(options.first, options.second))
    two.add_argument("first", type=Path, metavar="RECORD", help="record of `bench run`")
    two.add_argument("second", type=Path, metavar="RECORD", help="another record")


def _add_results(verb: argparse.ArgumentParser) -> None:
    told = "folder of the record (default: animegamer-rt/bench in the user's data folder)"
    verb.add_argument("--results", type=Path, metavar="DIR", help=told)


def _indented(text: str) -> str:
    return textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  ")


def _run(options: argparse.Namespace) -> int:
    from .run import BenchOptions, bench

    if options.suite is not None and options.turns is not None:
        raise ConfigError("a suite has its own turns", found="--turns", do="drop it, or --suite")
    suite = None if options.suite is None else load_suite(options.suite)
    engines, results = EngineConfig.from_arguments(options), options.results or results_folder()
    return bench(BenchOptions(options.bundle, options.plan, options.turns or TURNS, engines, results, suite))


def _serve(options: argparse.Namespace) -> int:
    from .serve import bench_serve

    results = options.results or results_folder()
    return bench_serve(options.bundle, options.plan, options.turns, results, workers=options.workers)
