"""The command line's parser: argparse with strict whole numbers, numbers, paths and texts.

Every command uses `Parser`. Options declare `type=int`, `float` or `Path` as usual and get the strict version.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from . import untrusted

T = TypeVar("T")
LARGEST = 2**63 - 1


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reads values strictly.

    Whole numbers are ASCII digits within 64 bits, numbers are finite, paths are possible, and no value is empty: an
    empty one is usually an unset shell variable. Options cannot be abbreviated. The parsed options have the called
    subcommand's parser as `parser`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.allow_abbrev = False
        self.register("type", int, whole(-LARGEST, LARGEST))
        self.register("type", float, _argument(untrusted.decimal_number))
        self.register("type", Path, _argument(untrusted.path))
        self.register("type", None, _text)
        self.register("action", "parsers", _Subcommands)
        self.set_defaults(parser=self)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print as argparse does, but keep the error of an unwritable stdout, which argparse would hide."""
        with contextlib.suppress(*(() if file is sys.stdout else (OSError, ValueError))):
            (file or sys.stderr).write(message)


class _Subcommands(argparse._SubParsersAction):  # type: ignore[type-arg]  # cannot be subscripted at run time
    """As argparse's; a subcommand's arguments are parsed by its own parser, and its help begins with its line here."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.type = str

    def add_parser(self, name: str, **options: Any) -> Any:
        return super().add_parser(name, **{"description": options.get("help"), **options})


def whole(low: int, high: int) -> Callable[[str], int]:
    """The `type` of an option for whole numbers from `low` to `high`."""
    return _argument(lambda text: untrusted.whole_number(text, low, high))


def _argument(read: Callable[[str], T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the value is empty; is a shell variable unset?")
    return text
