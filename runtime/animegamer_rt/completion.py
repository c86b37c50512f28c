"""Completion for bash and zsh: subcommands, options, files, and the bundles and plans of this machine.

shtab writes the script from the command's own parser. Bundles and plans are asked for when the user presses Tab, so a
bundle that is made later is completed too.
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
"""What the script asks for when Tab is pressed."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes this parser's command.

    The parser is changed, and is of no other use afterwards. Raises BackendError where shtab is not installed.
    """
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise BackendError("shtab is not installed, which writes the script", do="run: pip install shtab") from error
    ask = {name: shtab.cmd(f"{parser.prog} completion {name} 2>/dev/null") for name in NAMES}
    for action in _all_actions(parser):
        if (found := _complete(action, ask, shtab)) is not None:
            action.complete = found  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def names(what: str) -> list[str]:
    """The bundles that are found by name, or all plans of them."""
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
