"""The kernels' own code touches nothing beside the arrays it is given: on the CPU, under AddressSanitizer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EMULATED_VARIABLE = "ANIMEGAMER_TEST_EMULATED"
HERE = Path(__file__).resolve().parent
SHORT = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
import torch
from animegamer_kernels.library import Library
from kernel_arguments import valid_arguments
sizes = {{"codes": 24, "scales": 24, "out": 192}}
sizes[sys.argv[2]] -= int(sys.argv[3])
arrays = {{name: torch.zeros(size, dtype=torch.uint8) for name, size in sizes.items()}}
arguments = valid_arguments("unpack")
arguments.weight.codes, arguments.weight.scales = arrays["codes"].data_ptr(), arrays["scales"].data_ptr()
arguments.out = arrays["out"].data_ptr()
print("code", Library(Path(sys.argv[1])).call("unpack", arguments, 0))
"""
"""Unpacks a small weight, one of whose arrays is so many bytes too short."""


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=environment, cwd=HERE, capture_output=True, text=True)


def test_sanitized_emulated_kernels_stay_within_their_arrays(sanitized: dict[str, str]) -> None:
    tests = "emulated and not sanitized and not backend"
    done = run(sanitized, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-k", tests, ".")
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-4000:] + done.stderr[-4000:]


def test_sanitized_emulated_kernel_ends_where_an_array_does(sanitized: dict[str, str]) -> None:
    for array in ("codes", "scales", "out"):
        whole, short = (run(sanitized, "-c", SHORT, sanitized[EMULATED_VARIABLE], array, missing) for missing in "04")
        assert whole.stdout == "code 0\n", whole.stderr
        assert short.returncode != 0 and "heap-buffer-overflow" in short.stderr, short.stdout + short.stderr
