"""The tests that need a GPU, by pytest where it is installed: how many passed, and which did not.

Used by gpu.py. Knows pytest's report alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from animegamer_kernels.library import PATH_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
LIBRARY_VARIABLE = "ANIMEGAMER_TEST_LIBRARY"
"""What tests/kernels opens in place of building one. Source: tests/kernels/conftest.py."""
NONE_FOUND = 5
"""pytest's exit status where no test was left."""
TOLD_CHARACTERS = 300


def entries(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: counts, and the failures with their messages. Tests that fail end the process with how many."""
    if find_spec("pytest") is None:
        yield {"ran": False, "why": "pytest is not installed"}
        return
    found = {PATH_VARIABLE: asked["library"], LIBRARY_VARIABLE: asked["library"]} if asked["library"] else {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # Last words are the process's own: a crash or a hang leaves no report.
        command = [sys.executable, "-m", "pytest", "-v", "-m", "gpu", f"--junit-xml={report}", "-p", "no:cacheprovider"]
        done = subprocess.run([*command, asked["folder"]], cwd=ROOT, env={**os.environ, **found})
        if not report.is_file():
            sys.exit(f"pytest left no report; exit status {done.returncode}")
        said = counted(report)
    yield {"ran": True, **said}
    if done.returncode not in (0, NONE_FOUND):
        sys.exit(f"{said['failed']} tests of {asked['folder']} failed; pytest's exit status {done.returncode}")


def counted(report: Path) -> dict[str, Any]:
    """What a report in JUnit's form says; a test that broke before or after it ran is one that failed."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    broken = [(case, bad) for case in cases for bad in (*case.findall("failure"), *case.findall("error"))]
    skipped = sum(case.find("skipped") is not None for case in cases)
    failed = list(dict.fromkeys(f"{case.get('classname')}::{case.get('name')}" for case, _ in broken))
    words = {f"{case.get('classname')}::{case.get('name')}": bad.get("message", "") for case, bad in broken}
    return {
        "passed": len(cases) - skipped - len(failed),
        "failed": len(failed),
        "skipped": skipped,
        "failures": [{"test": test, "said": words[test][:TOLD_CHARACTERS]} for test in failed],
    }
