"""Options of `animegamer-rt selftest`, `doctor` and `info`. Commands import what they need when they run."""

from __future__ import annotations

import argparse
from pathlib import Path

from animegamer_rt.engine_config import BUNDLE_HELP, EngineConfig, add_bundle_options, add_engine_options


def add_selftest(selftest: argparse.ArgumentParser) -> None:
    """`animegamer-rt selftest`."""
    selftest.set_defaults(run=_selftest)
    add_bundle_options(selftest, plan=False)
    add_engine_options(selftest)
    selftest.add_argument("--out", type=Path, default=Path("selftest.json"), metavar="FILE", help="the report to write")


def add_doctor(doctor: argparse.ArgumentParser) -> None:
    """`animegamer-rt doctor`."""
    doctor.set_defaults(run=_doctor)
    add_bundle_options(doctor, plan=False)
    doctor.add_argument("--json", action="store_true", help="print JSON")


def add_info(info: argparse.ArgumentParser) -> None:
    """`animegamer-rt info`."""
    info.set_defaults(run=_info)
    info.add_argument("bundle", nargs="?", default="pocket", help=BUNDLE_HELP)
    form = info.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the whole manifest as JSON")
    form.add_argument("--list", action="store_true", help="list the bundles that are found by name")


def _selftest(options: argparse.Namespace) -> int:
    from .selftest import selftest

    return selftest(options.bundle, EngineConfig.from_arguments(options), options.out)


def _doctor(options: argparse.Namespace) -> int:
    from rich.console import Console

    from .doctor import doctor

    return doctor(options.bundle, options.json, Console())


def _info(options: argparse.Namespace) -> int:
    from rich.console import Console

    from animegamer_rt.bundle.loader import open_bundle

    from . import bundle_info

    if options.list:
        bundle_info.list_bundles(Console())
    elif options.json:
        print(bundle_info.as_json(open_bundle(options.bundle)))
    else:
        bundle_info.print_bundle(open_bundle(options.bundle), Console())
    return 0
