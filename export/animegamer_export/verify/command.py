"""The command `animegamer-rt verify`: options and output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from animegamer_rt.arguments import whole
from animegamer_rt.bundle.loader import open_bundle

from .figures import PARTS, START_PARTS, Figures, exceeds_tolerance

DIFFERS = 1
"""Exit code if a part's errors exceed what its precision allows."""


def lines(figures: Mapping[str, Figures]) -> Iterator[str]:
    """The figures as text, one per line."""
    for part, found in figures.items():
        yield f"{part}: {found['precision']} against {found['against']}"
        for name, value in found.items():
            if name not in ("precision", "against"):
                yield f"  {name.replace('_', ' '):28s} {value}"


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt verify`."""
    parser.set_defaults(run=_run)
    parser.add_argument("bundle", help="name or folder of the bundle to check")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--against", metavar="BUNDLE", help="bundle to compare with, by prompts and whole turns")
    given.add_argument(
        "--checkpoints", type=Path, metavar="DIR", help="folder of its checkpoints, to compare each part with torch"
    )
    parser.add_argument(
        "--parts", help=f"of {','.join((*PARTS, *START_PARTS))} (default: all; with --against, those that differ)"
    )
    parser.add_argument(
        "--instructions", type=whole(1, 100_000), default=200, metavar="N", help="prompts to compare (default: 200)"
    )
    parser.add_argument(
        "--turns", type=whole(1, 10_000), default=4, metavar="N", help="whole turns, texts and pictures (default: 4)"
    )
    parser.add_argument("--plan", help="exact, balanced or fast (default: balanced, or exact without it)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON; progress goes to stderr")


def _run(options: argparse.Namespace) -> int:
    parts = [] if options.parts is None else options.parts.split(",")
    known = (*PARTS, *START_PARTS)
    if set(parts) - set(known):
        options.parser.error(f"--parts is a list of {', '.join(known)}")
    bundle, to = open_bundle(options.bundle), sys.stderr if options.json else sys.stdout
    if options.against is not None:
        from .bundles import SampleCounts, compare

        against = open_bundle(options.against)
        figures = compare(bundle, against, SampleCounts(options.instructions, options.turns, options.plan), parts)
        made_of, wrong = against.fingerprint, exceeds_tolerance(figures)
    else:
        from . import against_torch

        source = against_torch.source_from_provenance(bundle, options.checkpoints)
        figures = against_torch.compare_with_torch(bundle, source, parts, lambda line: print(line, file=to, flush=True))
        made_of, wrong = source.description, against_torch.failed_figures(figures)
    if options.json:
        print(json.dumps({"bundle": bundle.manifest.name, "against": made_of, "parts": figures, "wrong": list(wrong)}))
    else:
        print("\n".join([*lines(figures), *(f"WRONG: {what}" for what in wrong)]))
    return DIFFERS if wrong else 0
