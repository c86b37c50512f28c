"""Copies CUDA sources, replacing each launch `kernel<<<grid, block, ..>>>(arguments);` by a call of emulation::launch.

Usage: `python translate.py SOURCES TARGET`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LAUNCH = re.compile(r"(\w+(?:<[\w\s(),]+>)?)<<<(.*?)>>>\(", re.DOTALL)


def closing(text: str, begin: int) -> int:
    """Index of the parenthesis that closes the one before `begin`."""
    depth = 1
    for at in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError("unbalanced parentheses in a kernel launch")


def translate(text: str) -> str:
    """The source with every launch replaced by a call."""
    while found := LAUNCH.search(text):
        end = closing(text, found.end())
        call = f"emulation::launch([&] {{ {found[1]}({text[found.end() : end]}); }}, {found[2]})"
        text = text[: found.start()] + call + text[end + 1 :]
    return text


def main(sources: Path, target: Path) -> None:
    """Writes only changed files, so that a build compiles as little as possible, and removes stale ones."""
    target.mkdir(parents=True, exist_ok=True)
    names = {f"{path.name}.cpp": path for path in sources.glob("*.cu")} | {
        path.name: path for path in sources.glob("*.cuh")
    }
    for stale in target.iterdir():
        if stale.name not in names:
            stale.unlink()
    for name, path in sorted(names.items()):
        text = translate(path.read_text(encoding="utf-8"))
        written = target / name
        if not written.is_file() or written.read_text(encoding="utf-8") != text:
            written.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
