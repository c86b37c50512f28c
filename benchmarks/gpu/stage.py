"""Runs one job of the GPU benchmark: `python -m benchmarks.gpu.stage JOB FILE` appends a JSON line per result to FILE.

Each job has its own process, so that a hang or a crash affects no other.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

MODULES: Mapping[str, str] = {
    "machine": "machine",
    "build": "build",
    "reference": "reference",
    "turns": "turns",
    "peers": "peers",
    "profile": "operator_profile",
}
"""Stage -> the module whose `entries` yields the results."""


def main(job: str, file: str) -> int:
    """Runs the job; each result is written immediately."""
    with Path(file).open("a", encoding="utf-8") as out:
        for entry in entries(json.loads(job)):
            out.write(json.dumps(entry) + "\n")
            out.flush()
    return 0


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The results of a job, as they arrive."""
    torch.backends.cudnn.allow_tf32 = False  # float32 is the reference, so convolutions must not use TF32.
    module = importlib.import_module(f"benchmarks.gpu.{MODULES[job_args['stage']]}")
    found: Iterator[dict[str, Any]] = module.entries(job_args)
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
