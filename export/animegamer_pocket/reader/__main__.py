"""`python -m animegamer_pocket.reader train|measure|add|language`: trains and measures readers, updates a bundle."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from animegamer_bench.machine import machine_facts
from animegamer_pocket.config import CONFIGS, FULL
from animegamer_rt.bundle.loader import load, open_bundle

from .accuracy import TrainedReader, bundle_reader, evaluate, reader_of
from .export import add_language, add_readers
from .picture import picture_accuracy, train_picture_reader
from .samples import vocabulary
from .training import load_reader, train_reader

TEXT, PICTURES = "reader.pt", "picture_reader.pt"


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_pocket.reader", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train both readers, or resume training")
    training.add_argument(
        "--recipe", choices=sorted(CONFIGS), default="full", help="full: as shipped; short: for tests"
    )
    measuring = commands.add_parser("measure", help="measure accuracy on labelled files")
    measuring.add_argument(
        "games", type=Path, nargs="+", help="files in the format of benchmarks/language/development.jsonl"
    )
    measuring.add_argument("--bundle", help="measure this bundle's reader instead of the trained weights")
    measuring.add_argument("--out", type=Path, help="file for the record, e.g. benchmarks/language/read.json")
    adding = commands.add_parser("add", help="replace the readers of a pocket bundle")
    adding.add_argument("bundle", type=Path, help="folder of the bundle, e.g. engines/pocket")
    speaking = commands.add_parser("language", help="update only the language file of a pocket bundle")
    speaking.add_argument("bundle", type=Path, help="folder of the bundle, e.g. engines/pocket")
    for command in (training, measuring, adding):
        command.add_argument("--work", type=Path, default=Path("pocket-work"), help="folder of the trained weights")
    args = parser.parse_args(argv)
    if args.command == "train":
        config = CONFIGS[args.recipe]
        train_reader(args.work / TEXT, config.reader_phase)
        print(picture_accuracy(train_picture_reader(args.work / PICTURES, config.picture_reader_phase)))
    elif args.command == "add":
        pictures = train_picture_reader(args.work / PICTURES, FULL.picture_reader_phase)
        add_readers(args.bundle, load_reader(args.work / TEXT), pictures, vocabulary(FULL.vocabulary_turns))
    elif args.command == "language":
        print(add_language(args.bundle, load(args.bundle).manifest).fingerprint)
    else:
        _measure(args.games, args.bundle, args.work, args.out)
    return 0


def _measure(games: list[Path], bundle: str | None, work: Path, out: Path | None) -> None:
    """Prints each wrong turn, then the record as one line; writes it to `out` if given."""
    if bundle is None:
        words = vocabulary(FULL.vocabulary_turns)
        reader, measured = reader_of(TrainedReader(load_reader(work / TEXT)), words), {"weights": TEXT}
    else:
        opened = open_bundle(bundle)
        reader, measured = bundle_reader(opened), {"bundle": opened.fingerprint}
    sets: dict[str, Any] = {}
    for path in games:
        sets[path.stem] = evaluate(reader, path)
        for row in sets[path.stem].pop("wrong"):
            sys.stdout.write(json.dumps({"set": path.stem, **row}, ensure_ascii=False) + "\n")
    facts = machine_facts()
    machine = {name: facts[name] for name in ("instruction_sets", "threads", "kernel")}
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    record = {**measured, "date": today, "machine": machine, "sets": sets}
    sys.stdout.write(json.dumps(record) + "\n")
    if out is not None:
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
