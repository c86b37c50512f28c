"""What holds for the project as a whole: what no file says, what a bundle weighs, what playing imports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from project import ROOT, project_files

# Assembled from pieces, so that this file does not say what it forbids.
MACHINE_PATH = re.compile(
    r"(?<![\w.}*/])/(?:" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers")) + r")/\w"
)
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")) + r")\b")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".sh", ".cu", ".cuh", ".cpp", ".h", ".cs", ""}
MAX_BUNDLE_MIB = 43.5


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    """`file:line` of every line of the project that matches."""
    found = []
    for path in project_files():
        if path.suffix in TEXT_SUFFIXES and path.stat().st_size < 500_000:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_no_file_names_a_path_of_one_machine_or_unfinished_work() -> None:
    assert lines_that_match(MACHINE_PATH) == []
    assert lines_that_match(UNFINISHED) == []


def test_the_shipped_bundle_keeps_within_its_size() -> None:
    folder = ROOT / "engines" / "pocket"
    mib = sum(path.stat().st_size for path in project_files() if Path(path).is_relative_to(folder)) / 2**20
    assert mib <= MAX_BUNDLE_MIB


def test_the_options_of_no_command_need_torch_or_onnx() -> None:
    modules = "animegamer_rt.cli, animegamer_bench.run, animegamer_rt.diagnose.selftest"
    shown = "sorted({'torch', 'onnx'} & sys.modules.keys())"
    parse = "for name in animegamer_rt.cli.HELP: animegamer_rt.cli.command_parser(name)"
    code = f"import sys, {modules}\n{parse}\nprint({shown})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
