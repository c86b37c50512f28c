"""Runs the tests that need a GPU, where pytest is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from animegamer_kernels.library import PATH_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
LIBRARY_VARIABLE = "ANIMEGAMER_TEST_LIBRARY"
"""The library that tests/kernels opens instead of building one. Source: tests/kernels/conftest.py."""
NO_TESTS = 5
"""pytest's exit status when it found no test."""


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: pytest's last line. Failed tests end the process with pytest's output."""
    if find_spec("pytest") is None:
        yield {"ran": False, "summary": "pytest is not installed"}
        return
    library = job_args["library"]
    variables = {PATH_VARIABLE: library, LIBRARY_VARIABLE: library} if library else {}
    command = [sys.executable, "-m", "pytest", "-rf", "-m", "gpu", "-p", "no:cacheprovider", job_args["folder"]]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    last = ""
    for line in process.stdout:  # passed on at once: after a crash or a hang, the last test's name is in the log
        print(line, end="", flush=True)
        last = line.strip(" =\n") or last
    code = process.wait()
    yield {"ran": True, "summary": last}
    if code not in (0, NO_TESTS):
        sys.exit(f"pytest {job_args['folder']}: {last}; exit status {code}")
