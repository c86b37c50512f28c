"""`python -m animegamer_export.pocket.reader train|measure|add`: train the reader, measure it, add it to a bundle."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .accuracy import evaluate
from .export import add_reader
from .training import load, train


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_export.pocket.reader", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train, or go on with a training that was stopped")
    training.add_argument("--weights", type=Path, default=Path("pocket-work/reader.pt"))
    training.add_argument("--steps", type=int, default=8000, help="steps of 256 turns (default: 8000)")
    measuring = commands.add_parser("measure", help="read a file of sentences and count what is read right")
    measuring.add_argument("games", type=Path, help="a file in the format of benchmarks/language/development.jsonl")
    measuring.add_argument("--weights", type=Path, default=Path("pocket-work/reader.pt"))
    adding = commands.add_parser("add", help="add the reader to a pocket bundle, in place of an earlier one")
    adding.add_argument("bundle", type=Path, help="the bundle's folder, e.g. engines/pocket")
    adding.add_argument("--weights", type=Path, default=Path("pocket-work/reader.pt"))
    args = parser.parse_args(argv)
    if args.command == "train":
        train(args.weights, args.steps)
        return 0
    if args.command == "add":
        add_reader(args.bundle, load(args.weights))
        return 0
    report = evaluate(load(args.weights), args.games)
    for row in report.pop("wrong"):
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
