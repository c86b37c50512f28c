"""Build the pocket bundle from nothing: python -m animegamer_export.pocket --work DIR --out engines/pocket

Phases run in order, and a phase whose result lies in the work folder is not run again; `--phase NAME` runs one alone
(decoder and denoiser may then run side by side). `--recipe short` walks the whole road in a minute or two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .config import RECIPES
from .context import BuildContext
from .phases import PHASES, write_networks


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_export.pocket", description=__doc__)
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="full")
    parser.add_argument("--work", type=Path, required=True, help="keeps the corpus and each phase's weights (4 GB)")
    parser.add_argument("--out", type=Path, required=True, help="where the bundle is written")
    parser.add_argument("--phase", choices=list(PHASES), help="run this phase alone")
    parser.add_argument("--device", default="cpu", help="where to train: cpu or cuda")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--fp32", type=Path, metavar="DIR", help="write the trained networks there in float32, no more")
    chosen = parser.parse_args(argv)
    torch.set_num_threads(chosen.threads)
    workshop = BuildContext(RECIPES[chosen.recipe], chosen.work, chosen.out, chosen.device)
    if chosen.fp32 is not None:
        write_networks(workshop, chosen.fp32, "fp32")
        return 0
    for name, phase in PHASES.items():
        if chosen.phase in (None, name):
            print(f"== {name}", flush=True)
            phase(workshop)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
