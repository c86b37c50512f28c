"""What holds for the project as a whole: who may import whom, and what no file says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import grimp
from project import ROOT, project_files

# Assembled from pieces, so that this file does not say what it forbids.
MACHINE_PATH = re.compile(
    r"(?<![\w.}*/])/(?:" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers")) + r")/\w"
)
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")) + r")\b")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".sh", ".cu", ".cuh", ".cpp", ".h", ".cs", ""}
MAX_BUNDLE_MIB = 30.5


def lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    """`file:line` of every line of the project that matches."""
    found = []
    for path in project_files():
        if path.suffix in TEXT_SUFFIXES and path.stat().st_size < 500_000:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def test_every_import_goes_down_the_layers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def imports_between_packages() -> set[tuple[str, str]]:
    """(importer, imported) for every two packages or modules that lie directly in the runtime."""
    graph = grimp.build_graph("animegamer_rt", cache_dir=None)
    names = [(module, target) for module in graph.modules for target in graph.find_modules_directly_imported_by(module)]
    pairs = {tuple(name.partition(".")[2].partition(".")[0] for name in pair) for pair in names}
    return {(a, b) for a, b in pairs if a and b and a != b and a != "__main__"}


def reachable(arrows: set[tuple[str, str]], start: str) -> set[str]:
    """What arrows lead to from there."""
    found: set[str] = set()
    while new := {b for a, b in arrows if a in found | {start}} - found:
        found |= new
    return found


def test_the_picture_of_the_packages_is_that_of_their_imports() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, picture = re.findall(r"```mermaid\nflowchart TD\n(.*?)```", page, re.DOTALL)
    drawn = set(re.findall(r"(\w+) --> (\w+)", picture))
    imports = imports_between_packages()
    assert {(a, b) for a, b in imports if b not in reachable(drawn, a)} == set(), "imports that no arrows lead along"
    assert drawn - imports == set(), "arrows without an import"


def test_no_file_names_a_path_of_one_machine_or_unfinished_work() -> None:
    assert lines_that_match(MACHINE_PATH) == []
    assert lines_that_match(UNFINISHED) == []


def test_the_shipped_bundle_keeps_within_its_size() -> None:
    folder = ROOT / "engines" / "pocket"
    mib = sum(path.stat().st_size for path in project_files() if Path(path).is_relative_to(folder)) / 2**20
    assert mib <= MAX_BUNDLE_MIB


def test_importing_the_command_imports_no_torch() -> None:
    modules = ("cli", "bench.command", "play.command", "diagnose.selftest")
    code = f"import sys, {', '.join(f'animegamer_rt.{name}' for name in modules)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
