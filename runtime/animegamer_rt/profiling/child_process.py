"""Starts Python child processes that ignore files in the current folder, and describes how one ended."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

KILLED = 9
"""SIGKILL; Windows has no such name."""
PROGRAM = (
    "import sys; sys.path[:] = [one for one in sys.path if one]; sys.argv.pop(0); root = sys.argv.pop(0); "
    "sys.path += [root] if root not in sys.path else []; "
    "import runpy; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""`python -m` would search the current folder first, and `-P` only exists from Python 3.11 on. With `-c` that folder is
the empty entry of the path, which is removed before anything but the built-in `sys` is imported."""


def child_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as `python -m` does, without the current folder on its path.

    The child finds the module's package where this process found it.
    """
    package = importlib.util.find_spec(module.partition(".")[0])
    assert package is not None and package.submodule_search_locations
    root = Path(next(iter(package.submodule_search_locations))).absolute().parent
    return [sys.executable, "-c", PROGRAM, str(root), module, *arguments]


def describe_end(code: int) -> str:
    """How a worker's process ended, as words that follow its name."""
    if code == -KILLED:
        return "was killed (signal 9; out of memory? see journalctl -k)"
    if code < 0:
        return f"was ended by signal {-code}"
    return f"ended with code {code}"
