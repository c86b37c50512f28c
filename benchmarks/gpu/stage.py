"""Runs one job of the GPU benchmark: `python -m benchmarks.gpu.stage JOB FILE` appends a JSON line per result to FILE.

Each job has a process of its own, so that a hang or a crash ends no other.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

MODULES: Mapping[str, str] = {
    "machine": "machine",
    "build": "build",
    "checks": "checks",
    "rates": "rates",
    "kernels": "kernels",
    "turns": "turns",
    "peers": "peers",
    "queue": "turn_queue",
    "profile": "operator_profile",
}
"""Stage -> the module whose `entries` yields the results."""


def main(job: str, file: str) -> int:
    """Run the job; each result is written at once."""
    job_args = json.loads(job)
    torch.backends.cudnn.allow_tf32 = False  # float32 is the reference: convolutions must be float32 too
    with Path(file).open("a", encoding="utf-8") as out:
        for entry in importlib.import_module(f"benchmarks.gpu.{MODULES[job_args['stage']]}").entries(job_args):
            out.write(json.dumps(entry) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
