"""Where the project's files are, with git or without, how one of its commands is run, and what old packages lack."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import pytest

from animegamer_rt.arguments import Parser

ROOT = Path(__file__).resolve().parents[2]
with_newer_onnxruntime = pytest.mark.skipif(
    version("onnxruntime").startswith("1.23."),
    reason="onnxruntime 1.23, the last for Python 3.10, lacks QuantizeLinear of opset 23 and Min in float16",
)


def project_files(root: Path = ROOT) -> list[Path]:
    """The files of the project: those git knows or would add; without git, all outside the folders of .gitignore."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        names = _outside_ignored(root)
    return [root / name for name in names if name and (root / name).is_file()]


def _outside_ignored(root: Path) -> list[str]:
    lines = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    folders = [".git/", *(line for line in lines if line.endswith("/") and not line.startswith("!"))]

    def ignored(parts: tuple[str, ...]) -> bool:
        places = [(folder, parts[:1] if folder.startswith("/") else parts) for folder in folders]
        return any(fnmatch(part, folder.strip("/")) for folder, where in places for part in where)

    names = (path.relative_to(root) for path in root.rglob("*"))
    return sorted(str(name) for name in names if not ignored(name.parts))


def run_command(add_command: Callable[[argparse.ArgumentParser], None], words: Sequence[str]) -> int:
    """Parse the words and run a subcommand; unlike in the program, its errors are raised."""
    parser = Parser()
    add_command(parser)
    options = parser.parse_args(words)
    code: int = options.run(options)
    return code
