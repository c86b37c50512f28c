"""`python -m animegamer_pocket.language --games N --seed S`: random games as JSON lines, or figures."""

from __future__ import annotations

import argparse
import json
import sys

from .frames import count_frames
from .games import json_lines
from .lexicon import count_phrases
from .noise import words_in


def main(argv: list[str] | None = None) -> int:
    """Print the turns of games, or with --stats how broad the corpus is."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_pocket.language", description=__doc__)
    parser.add_argument("--games", type=int, default=20, help="how many games (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same games (default: 0)")
    parser.add_argument("--stats", action="store_true", help="count phrases, frames, words and sentences instead")
    args = parser.parse_args(argv)
    if not args.stats:
        for line in json_lines(args.games, args.seed):
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        return 0
    texts = [str(line["say"]) for line in json_lines(args.games, args.seed)]
    words = set().union(*(words_in(text) for text in texts)) if texts else set()
    figures = {
        "phrases": count_phrases(),
        "frames": count_frames(),
        "turns": len(texts),
        "distinct_sentences": len(set(texts)),
        "distinct_words": len(words),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
