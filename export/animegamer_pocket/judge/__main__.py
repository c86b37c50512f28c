"""Rebuilds the judge: generates clips with a bundle, trains on them and on renders, measures, and writes judge.onnx.

    python -m animegamer_pocket.judge draw --work judge-work --clips 600
    python -m animegamer_pocket.judge train --work judge-work
    python -m animegamer_pocket.judge measure --work judge-work

Drawing (about 0.6 s per clip on one core) and training resume after an interruption.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from . import accuracy
from .generated import write_parts
from .model import export
from .reading import SHIPPED, Judge
from .training import gather, train

HAND = Path("benchmarks/judge")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m animegamer_pocket.judge",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("do", choices=("draw", "train", "measure"))
    parser.add_argument("--work", type=Path, required=True, help="folder of generated clips and training state")
    parser.add_argument("--bundle", default="pocket", help="draw: the bundle that generates clips (default: pocket)")
    parser.add_argument("--clips", type=int, default=600, help="draw: number of clips (default: %(default)s)")
    parser.add_argument("--renders", type=int, default=4000, help="train: rendered clips (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4000, help="train: steps of 16 examples (default: %(default)s)")
    parser.add_argument("--judge", type=Path, default=SHIPPED, help="train, measure: ONNX file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    drawn, held_out = options.work / "drawn", options.work / "held"
    if options.do == "draw":
        write_parts(options.bundle, held_out, 150, options.seed + 1, train=False)
        write_parts(options.bundle, drawn, options.clips, options.seed)
    elif options.do == "train":
        material = gather(options.renders, drawn, options.seed)
        network = train(material, options.steps, options.seed, options.work / "state.pt")
        export(network, options.judge)
        made_of = {"renders": options.renders, "drawn": int(material.drawn.sum()), "steps": options.steps}
        _write(options.judge, {"training": {**made_of, "parameters": network.size}})
    else:
        judge = Judge(options.judge)
        renders, clips = gather(400, None, options.seed + 1, train=False), gather(0, held_out, 0, train=False)
        figures = {
            "held_out_renders": accuracy.content_figures(judge, renders),
            "damaged_renders": accuracy.damaged_figures(judge, renders),
            "held_out_drawn": accuracy.content_figures(judge, clips),
            "damaged_drawn": accuracy.damaged_figures(judge, clips),
            "labelled_by_eye": accuracy.hand_figures(judge, HAND),
        }
        _write(options.judge, figures)
        print(json.dumps(figures, indent=1))
    return 0


def _write(judge: Path, figures: Mapping[str, object]) -> None:
    """Merges figures into the record next to the judge."""
    record = judge.with_suffix(".json")
    before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    record.write_text(json.dumps({**before, **figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
