"""One job of gpu.py in its own process: `python -m benchmarks.gpu_stage JOB FILE`, one JSON entry a line into FILE.

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
    "machine": "gpu_machine",
    "build": "gpu_build",
    "checks": "gpu_checks",
    "rates": "gpu_rates",
    "kernels": "gpu_kernels",
    "turns": "gpu_turns",
    "peers": "gpu_peers",
    "queue": "gpu_queue",
    "tests": "gpu_tests",
    "profile": "gpu_profile",
}
"""Stage -> the module whose `entries` yields what was found."""


def main(job: str, file: str) -> int:
    """Does the job; every entry is in the file as soon as it is known."""
    asked = json.loads(job)
    torch.backends.cudnn.allow_tf32 = False  # float32 is the check: a convolution's must be float32 too
    with Path(file).open("a", encoding="utf-8") as out:
        for entry in importlib.import_module(f"benchmarks.{MODULES[asked['stage']]}").entries(asked):
            out.write(json.dumps(entry) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
