"""The command line's parser: argparse with strict whole numbers, numbers, paths and texts."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_PATH_BYTES, MAX_NAME_BYTES = 4095, 255
"""Limits of Linux; those of other systems are not larger."""
EMPTY = "an empty value; give one, or is a variable of the shell not set?"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser for ASCII digits, finite numbers, paths that can exist, and values that are not empty."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("type", float, _number)
        self.register("type", Path, _path)
        self.register("type", None, _text)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print as argparse does, but keep the error of a stdout that cannot be written: argparse would hide it."""
        with contextlib.suppress(*(() if file is sys.stdout else (OSError, ValueError))):
            (file or sys.stderr).write(message)

    def add_subparsers(self, **options: Any) -> argparse._SubParsersAction[Any]:
        """As argparse has it; the words of a subcommand are left to that subcommand's own parser."""
        commands = super().add_subparsers(**options)
        commands.type = str
        return commands


def whole(low: int, high: int) -> Callable[[str], int]:
    """The `type` of an option that takes a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse


def _number(text: str) -> float:
    if not re.fullmatch(r"-?(?:[0-9]{1,19}(?:\.[0-9]{0,19})?|\.[0-9]{1,19})(?:[eE][+-]?[0-9]{1,2})?", text):
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a number, as in 0.5")
    return float(text)


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(EMPTY)
    return text


def _path(text: str) -> Path:
    try:
        found = Path(_text(text)).expanduser()
        names = [len(os.fsencode(part)) for part in found.parts]
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a path: there is no such user") from error
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a path: this system cannot encode it") from error
    if "\0" in text or max(names, default=0) > MAX_NAME_BYTES or len(os.fsencode(found)) > MAX_PATH_BYTES:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is not a path: it is too long, or holds a NUL character")
    return found
