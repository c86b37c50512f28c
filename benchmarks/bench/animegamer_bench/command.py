"""`animegamer-rt bench run|serve|compare|verify|show`: the options of each.

What a verb needs is imported when it runs, so that `bench show` loads no engine.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import replace
from pathlib import Path

from animegamer_rt.arguments import whole
from animegamer_rt.engine_config import EngineConfig, add_bundle_options, add_engine_options
from animegamer_rt.errors import ConfigError

from .presets import FORMATS, ONE_GAME, PRESETS, SUITE_GAMES, TIMED, Preset, load_suite, results_folder

RESULTS_HELP = "where the record goes (default: animegamer-rt/bench in the user's data folder)"


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
    add("--suite", type=whole(1, 99), help="a frozen suite, for figures to cite; 10 minutes a plan")
    add(
        "--preset",
        choices=tuple(PRESETS),
        help="named settings to cite and repeat; --bundle, --plan and --turns change them (docs: benchmarks/README.md)",
    )
    add_bundle_options(run)
    run.set_defaults(bundle=None)
    add_engine_options(run)
    add("--turns", type=whole(1, 10_000), help="turns of each measurement (default: 15)")
    add("--results", type=Path, metavar="DIR", help=RESULTS_HELP)
    add("--trace", type=Path, metavar="FILE", help="the median turn as JSON, for ui.perfetto.dev")

    serve = verbs.add_parser("serve", help="measure the server")
    serve.set_defaults(run=_serve)
    add = serve.add_argument
    add_bundle_options(serve)
    add("--turns", type=whole(1, 10_000), default=25, help="turns of each measurement (default: %(default)s)")
    add("--results", type=Path, metavar="DIR", help=RESULTS_HELP)
    add("--replay", type=Path, metavar="GAME", help="a folder of `play`, played again with its think times")

    compare = verbs.add_parser("compare", help="show two records side by side")
    compare.set_defaults(run=_compare)
    compare.add_argument("first", type=Path, metavar="RECORD", help="a file of --results")
    compare.add_argument("second", type=Path, metavar="RECORD", help="another one")
    compare.add_argument("--json", action="store_true", help="print JSON")

    verify = verbs.add_parser("verify", help="check that records are sound")
    verify.set_defaults(run=_verify)
    _add_records(verify)

    show = verbs.add_parser("show", help="print records")
    show.set_defaults(run=_show)
    _add_records(show)
    show.add_argument("--format", choices=FORMATS, default="md", help="default: %(default)s")


def _add_records(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="files of --results")


def _indented(text: str) -> str:
    return textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  ")


def _run(options: argparse.Namespace) -> int:
    from .run import BenchOptions, bench

    if options.suite is not None and (options.preset is not None or options.turns is not None):
        raise ConfigError("a suite has its own turns", found="--preset or --turns", do="leave them out, or --suite")
    suite = None if options.suite is None else load_suite(options.suite)
    preset = PRESETS.get(options.preset, Preset())
    settings = replace(
        preset,
        bundle=preset.bundle if options.bundle is None else options.bundle,
        plans=preset.plans if options.plan is None else (options.plan,),
        turns=preset.turns if options.turns is None else options.turns,
        made_by=preset.made_by if options.bundle is None else None,
    )
    name = options.preset if settings == preset else None
    engines, results = EngineConfig.from_arguments(options), options.results or results_folder()
    return bench(BenchOptions(settings, name, engines, results, options.trace, suite))


def _serve(options: argparse.Namespace) -> int:
    from .serve import ServeBench, bench_serve

    results = options.results or results_folder()
    return bench_serve(ServeBench(options.bundle, options.plan, options.turns, results=results, replay=options.replay))


def _compare(options: argparse.Namespace) -> int:
    from .compare import compare

    return compare(options.first, options.second, options.json)


def _verify(options: argparse.Namespace) -> int:
    from .verify import verify

    return verify(options.records)


def _show(options: argparse.Namespace) -> int:
    from .report import show

    return show(options.records, options.format)
