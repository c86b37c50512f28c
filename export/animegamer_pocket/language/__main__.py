"""`python -m animegamer_pocket.language --games N --seed S`: random games as JSON lines."""

from __future__ import annotations

import argparse
import json
import sys

from .games import json_lines


def main(argv: list[str] | None = None) -> int:
    """Prints the turns of games."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_pocket.language", description=__doc__)
    parser.add_argument("--games", type=int, default=20, help="number of games (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    args = parser.parse_args(argv)
    for line in json_lines(args.games, args.seed):
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
