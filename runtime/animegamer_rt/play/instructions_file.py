"""Instructions from a file, from standard input, or from a bundle's examples.

All lines are checked before the first turn is played, so a mistake in the last line costs no time.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import stat
import sys
from pathlib import Path
from typing import cast

from animegamer_rt.bundle.manifest import World
from animegamer_rt.errors import InstructionError
from animegamer_rt.state.game import Instruction
from animegamer_rt.untrusted import short

STDIN = "-"
MAX_BYTES = 16 * 2**20
"""About thirty thousand turns."""
OTHER_KINDS = re.compile(r"""\s*(\{|\[\s*[\["{]|<[!\w]|%PDF|PK\x03|version https://git-lfs)""")
"""How JSON, web pages, documents and Git LFS pointers begin."""
PIPE_WAIT_SECONDS = 0.5
"""How long to wait for input from a pipe before playing the bundle's examples instead."""


def read_script(source: str) -> list[str]:
    """The instructions in a file (`-`: standard input), one per line; blank lines and comments (#) are skipped.

    Raises InstructionError for a line that cannot be played, with its number, or if there is no instruction.
    """
    name = "standard input" if source == STDIN else source
    try:
        content = _read(source)
        text = content.decode(json.detect_encoding(content))  # Windows' PowerShell writes UTF-16
    except OSError as error:
        raise InstructionError(
            "the instructions cannot be read",
            where=name,
            found=(error.strerror or str(error)).lower(),
            do="give a text file, or - for standard input",
        ) from error
    except UnicodeDecodeError as error:
        raise InstructionError(
            "the instructions are not UTF-8 text",
            where=f"{name}, line {content.count(bytes([10]), 0, error.start) + 1}",
            found=f"byte {error.start + 1} is {content[error.start]:#x}",
            do="save the file as UTF-8",
        ) from error
    except ValueError as error:
        raise InstructionError("the instructions cannot be read", where=ascii(name), found=str(error)) from error
    if OTHER_KINDS.match(text):
        found, expected = short(text.strip().splitlines()[0]), "text with one instruction per line"
        raise InstructionError("not instructions", where=name, found=found, expected=expected)
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            Instruction.parse(line)
        except InstructionError as error:
            raise InstructionError(str(error), where=f"{name}, line {number}") from error
        lines.append(line.strip())
    if not lines:
        raise InstructionError("there are no instructions", where=name, expected="one per line")
    return lines


def _read(source: str) -> bytes:
    """The content of a file, a pipe or standard input, up to MAX_BYTES."""
    if source == STDIN:
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(source).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InstructionError(
            "the instructions are too long",
            where="standard input" if source == STDIN else source,
            expected=f"at most {MAX_BYTES // 2**20} MiB",
            do="give a text file with one instruction per line",
        )
    return content


def example_script(world: World) -> list[str]:
    """The bundle's example game. Raises InstructionError if it has none."""
    if not world.examples:
        raise InstructionError("this bundle has no example game", do="give instructions: --instructions FILE")
    return list(world.examples)


def stdin_has_lines() -> bool:
    """Whether standard input is a file with content, or a pipe with input; waits at most PIPE_WAIT_SECONDS."""
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    if stat.S_ISREG(kind):
        return os.fstat(descriptor).st_size > 0
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)) or sys.platform == "win32":
        return False
    ready, _, _ = select.select([descriptor], [], [], PIPE_WAIT_SECONDS)
    return bool(ready) and bool(cast(io.BufferedReader, sys.stdin.buffer).peek(1))
