"""`python -m animegamer_export.pocket.reader train|measure|add`: train the readers, measure, add them to a bundle."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from animegamer_export.pocket.config import CONFIGS, FULL

from .accuracy import evaluate
from .export import add_readers
from .picture import picture_accuracy, train_picture_reader
from .training import load_reader, train_reader

TEXT, PICTURES = "reader.pt", "picture_reader.pt"


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_export.pocket.reader", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train both readers, or go on with a training that was stopped")
    training.add_argument("--recipe", choices=sorted(CONFIGS), default="full", help="full ships; short is for tests")
    measuring = commands.add_parser("measure", help="read a file of sentences and count what is read right")
    measuring.add_argument("games", type=Path, help="a file in the format of benchmarks/language/development.jsonl")
    adding = commands.add_parser("add", help="add the readers to a pocket bundle, in place of earlier ones")
    adding.add_argument("bundle", type=Path, help="the bundle's folder, e.g. engines/pocket")
    for command in (training, measuring, adding):
        command.add_argument("--work", type=Path, default=Path("pocket-work"), help="folder of the trained weights")
    args = parser.parse_args(argv)
    if args.command == "train":
        config = CONFIGS[args.recipe]
        train_reader(args.work / TEXT, config.reader_phase)
        print(picture_accuracy(train_picture_reader(args.work / PICTURES, config.picture_reader_phase)))
    elif args.command == "add":
        pictures = train_picture_reader(args.work / PICTURES, FULL.picture_reader_phase)
        add_readers(args.bundle, load_reader(args.work / TEXT), pictures)
    else:
        report = evaluate(load_reader(args.work / TEXT), args.games)
        for row in report.pop("wrong"):
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
