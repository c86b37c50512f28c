"""Completion for bash and zsh: subcommands, options, files, and the bundles and plans of this machine.

shtab writes the script from the command's own parser. Bundles and plans are looked up when the user presses Tab, so
new bundles are included.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .bundle.loader import list_bundles, list_plans
from .errors import BackendError

SHELLS = ("bash", "zsh")
NAMES = ("bundles", "plans")
"""What the script looks up when Tab is pressed."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of this parser's command.

    Modifies the parser, which cannot be used afterwards. Raises BackendError if shtab is not installed.
    """
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise BackendError("shtab, which writes the script, is not installed", do="run: pip install shtab") from error
    ask = {name: shtab.cmd(f"{parser.prog} completion {name} 2>/dev/null") for name in NAMES}
    for action in _all_actions(parser):
        if (found := _complete(action, ask, shtab)) is not None:
            action.complete = found  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def names(what: str) -> list[str]:
    """The bundles found by name, or all their plans."""
    return sorted(list_bundles() if what == "bundles" else list_plans())


def _complete(action: argparse.Action, ask: Mapping[str, Any], shtab: Any) -> Any:
    if action.dest in ("bundle", "plan"):
        return ask[f"{action.dest}s"]
    if action.metavar == "DIR":
        return shtab.DIRECTORY
    return shtab.FILE if action.metavar in ("FILE", "RECORD") or action.type is Path else None


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_actions(command)
