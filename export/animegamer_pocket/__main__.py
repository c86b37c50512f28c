"""Builds the pocket bundle from scratch: python -m animegamer_pocket --work DIR --out engines/pocket

Phases run in order and are skipped if their result is in the work folder. `--phase NAME` runs one phase, so that
decoder and denoiser can be trained concurrently. `--recipe short` runs all phases in a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .config import CONFIGS
from .context import BuildContext
from .phases import PHASES


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_pocket", description=__doc__)
    parser.add_argument("--recipe", choices=sorted(CONFIGS), default="full", help="full: as shipped; short: for tests")
    parser.add_argument("--work", type=Path, required=True, help="folder for the corpus and all weights (4 GB)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle; replaced")
    parser.add_argument("--phase", choices=list(PHASES), help="run only this phase")
    parser.add_argument("--device", default="cpu", help="device to train on: cpu or cuda")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="PyTorch's CPU threads")
    chosen = parser.parse_args(argv)
    torch.set_num_threads(chosen.threads)
    context = BuildContext(CONFIGS[chosen.recipe], chosen.work, chosen.out, chosen.device)
    for name, phase in PHASES.items():
        if chosen.phase in (None, name):
            print(f"== {name}", flush=True)
            if not context.weights_path(name).exists():
                phase(context)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
