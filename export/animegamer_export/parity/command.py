"""The command `animegamer-rt parity`: checks a folder of recordings and prints a table."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt parity`."""
    parser.set_defaults(run=_run)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of NAME.json + NAME.safetensors")


def _run(options: argparse.Namespace) -> int:
    """0 if every set passes, 1 if one fails. Raises CheckpointError if there are none."""
    from .report import check_folder, table  # they need PyTorch

    results = check_folder(options.folder)
    print(table(results))
    return 0 if all(result.passed for result in results) else 1
