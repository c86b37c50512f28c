"""Reads JSON from untrusted files: with limited size and depth, and only plain values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from .files import read_bounded

MAX_BYTES = 32 * 2**20
"""A record of a long game or an export takes a megabyte or two."""
MAX_DEPTH = 64
MAX_INTEGER = 2**63 - 1


def read_json(path: Path, limit: int = MAX_BYTES) -> Any:
    """The value in a file. Raises OSError if it cannot be read, and ValueError as `parse_json` does."""
    return parse_json(read_bounded(path, limit))


def parse_json(content: bytes) -> Any:
    """A JSON value in UTF-8, nested at most 64 deep, with finite 64-bit numbers, no key twice and no lone surrogates.

    Raises ValueError with the reason for anything else.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error
    try:
        value = json.loads(
            text, parse_int=_integer, parse_float=_number, parse_constant=_number, object_pairs_hook=once
        )
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep") from error
    _check(value)
    return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a key that is given twice."""
    read = dict(pairs)
    if len(read) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    return read


def _check(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += [*one, *one.values()]
            elif isinstance(one, list):
                inner += one
            elif isinstance(one, str):
                _check_text(one)
        level, depth = inner, depth + 1


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
        raise ValueError("a text contains a lone surrogate")


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > MAX_INTEGER:
        raise ValueError(f"a number is out of range: {text[:20]}{'..' if len(text) > 20 else ''}")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a number is not finite: {text[:20]}")
    return value
