"""Which of the measurements and readings of records `animegamer-rt bench` is asked for.

Knows the arguments; imports only what is asked for, so that `bench show` loads no engine.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ConfigError

from .presets import PRESETS, Preset, results_folder


def dispatch(options: argparse.Namespace) -> int:
    """Run the subcommand that the arguments of `bench` name; returns the exit code. Raises AnimeGamerError."""
    if options.what == "compare":
        from .compare import compare

        return compare(options.records, options.json)
    if options.what == "show":
        from .show import show

        return show(options.records, options.format or "md")
    if options.format is not None:
        raise ConfigError("--format belongs to `bench show`", found=options.format, do="leave it out")
    if options.json:
        raise ConfigError("only `bench compare` prints JSON", do="leave --json out: each record is a JSON file")
    if options.what == "verify":
        from .verify import verify

        return verify(options.records)
    if options.what == "pack":
        from .pack import pack

        if len(options.records) != 1:
            raise ConfigError("pack needs one record", found=f"{len(options.records)}", do="give a file of --results")
        print(pack(options.records[0], options.trace, options.results or Path()))
        return 0
    if options.records:
        what = "only `bench compare`, `verify`, `show` and `pack` take records"
        raise ConfigError(what, found=str(options.records[0]), do="leave them out")
    results = results_folder() if options.results is None else options.results
    engines = EngineConfig.from_arguments(options)
    if options.what == "serve":
        from animegamer_rt.serving.bench.command import ServeBench, bench_serve

        turns_only = (options.preset, options.suite, options.trace)
        if any(one is not None for one in turns_only) or engines != EngineConfig():
            what = "--preset, --suite, --trace and the options of engines belong to `bench run`, not to `bench serve`"
            raise ConfigError(what, do="leave them out")
        bundle = "pocket" if options.bundle is None else options.bundle
        return bench_serve(
            ServeBench(bundle, options.plan, options.turns or 25, results=results, replay=options.replay)
        )
    if options.replay is not None:
        raise ConfigError("--replay belongs to `bench serve`", found=str(options.replay), do="leave it out")
    from .command import BenchOptions, bench
    from .suite import load_suite

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
    return bench(BenchOptions(settings, name, engines, results, options.trace, suite))
