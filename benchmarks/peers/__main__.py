"""`python -m benchmarks.peers`: times the same turns by this project and by transformers and diffusers, in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from animegamer_bench.records import write_record
from animegamer_bench.suites import results_folder
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.profiling.host import available_cores

from .run import OURS, differing, measure


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints a table and writes the record; 1 if a float32 engine produced different turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--bundle", default="pocket", help="name or folder of the bundle (default: pocket)")
    parser.add_argument("--plan", help="default: the bundle's")
    parser.add_argument("--turns", type=int, default=10, help="timed turns of each engine (default: 10)")
    parser.add_argument("--threads", type=int, default=available_cores(), help="per engine (default: all cores)")
    parser.add_argument("--results", type=Path, default=results_folder(), help="folder of the record")
    options = parser.parse_args(argv)
    if options.turns < 1 or options.threads < 1:
        parser.error("--turns and --threads must be at least 1")
    try:
        make_folder(options.results)
        bundle = open_bundle(options.bundle)
        record = measure(bundle, options.plan or bundle.default_plan, options.turns, options.threads)
        path = write_record(options.results, f"{record['bundle']}-peers", record)
    except AnimeGamerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{record['bundle']}, plan {record['plan']}, {record['n']} turns of each, {record['machine']}")
    print(f"{'':<36}{'median':>10}{'longest':>10}{'times':>8}  frames differ by")
    for entry in record["engines"]:
        median, longest = entry["seconds_per_turn_p50"], entry["seconds_per_turn_max"]
        levels = f"{entry['frame_difference']} of 255"
        print(f"{entry['name']:<36}{median:>8.3f} s{longest:>8.3f} s{entry['ratio']:>8}  {levels}")
    print(f"times: the median over that of {OURS}; frames: compared with {record['reference']}")
    for reason in sorted({reason for entry in record["engines"] for reason in entry["unsteady"]}):
        print(f"unsteady: {reason}")
    print(f"record: {path}")
    if wrong := differing(record):
        print(f"error: turns differ, so times cannot be compared: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
