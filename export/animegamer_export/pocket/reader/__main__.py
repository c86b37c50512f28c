"""`python -m animegamer_export.pocket.reader train|measure|add`: train the readers, measure, add them to a bundle."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .accuracy import evaluate
from .export import add_readers
from .picture import picture_accuracy, train_picture_reader
from .training import load, train

TEXT, PICTURES = "reader.pt", "picture_reader.pt"


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_export.pocket.reader", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train both readers, or go on with a training that was stopped")
    training.add_argument("--steps", type=int, default=7000, help="steps of 256 turns (default: 7000)")
    training.add_argument("--picture-steps", type=int, default=2500, help="steps of 48 pictures (default: 2500)")
    measuring = commands.add_parser("measure", help="read a file of sentences and count what is read right")
    measuring.add_argument("games", type=Path, help="a file in the format of benchmarks/language/development.jsonl")
    adding = commands.add_parser("add", help="add the readers to a pocket bundle, in place of earlier ones")
    adding.add_argument("bundle", type=Path, help="the bundle's folder, e.g. engines/pocket")
    for command in (training, measuring, adding):
        command.add_argument("--work", type=Path, default=Path("pocket-work"), help="folder of the trained weights")
    args = parser.parse_args(argv)
    if args.command == "train":
        train(args.work / TEXT, args.steps)
        print(picture_accuracy(train_picture_reader(args.work / PICTURES, args.picture_steps)))
    elif args.command == "add":
        add_readers(args.bundle, load(args.work / TEXT), train_picture_reader(args.work / PICTURES, 0))
    else:
        report = evaluate(load(args.work / TEXT), args.games)
        for row in report.pop("wrong"):
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
