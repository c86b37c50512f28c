"""One job of gpu.py in its own process: `python -m benchmarks.gpu.stage JOB FILE`, one JSON entry a line into FILE.

Whatever goes wrong here, a hang and a crash too, is this process's end and nobody else's.
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
    "tests": "tests",
    "profile": "operator_profile",
}
"""Stage -> the module whose `entries` yields what was found."""


def main(job: str, file: str) -> int:
    """Does the job; every entry is in the file as soon as it is known."""
    asked = json.loads(job)
    torch.backends.cudnn.allow_tf32 = False  # float32 is the check: a convolution's must be float32 too
    with Path(file).open("a", encoding="utf-8") as out:
        for entry in importlib.import_module(f"benchmarks.gpu.{MODULES[asked['stage']]}").entries(asked):
            out.write(json.dumps(entry) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
