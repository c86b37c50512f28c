"""The kernels' own code stays within its arrays: on the CPU, under AddressSanitizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_sanitized_emulated_kernels_stay_within_their_arrays(sanitized: dict[str, str]) -> None:
    tests = "emulated and not sanitized and not backend"
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-k", tests, "."]
    done = subprocess.run(command, env=sanitized, cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:] + done.stderr[-4000:]
