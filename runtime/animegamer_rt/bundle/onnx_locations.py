"""The data files that an ONNX file refers to. The manifest must list them, or they would not be verified.

Parses only the parts of onnx.proto that can contain a tensor, so that playing needs no onnx package.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

from .protobuf import fields

_KEY = b"location"
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""Message -> field number -> the message in it; source: onnx.proto. An `entry` has a key (1) and a value (2)."""


def data_locations(path: Path) -> set[str]:
    """The locations of external data in an ONNX file. Raises OSError, and ValueError for a file that is not ONNX."""
    with path.open("rb") as file:
        if not file.read(1):
            return set()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            # Most files have none, and searching for the word is instant.
            return set(_locations(data)) if data.find(_KEY) >= 0 else set()


def _locations(data: mmap.mmap) -> Iterator[str]:
    waiting = [("model", 0, len(data))]
    while waiting:
        kind, start, end = waiting.pop()
        entry: dict[int, bytes] = {}
        for number, value, first, last in fields(data, start, end):
            if value is not None:
                continue
            if kind == "entry":
                entry[number] = data[first:last]
            elif number in _FIELDS[kind] and data.find(_KEY, first, last) >= 0:
                waiting.append((_FIELDS[kind][number], first, last))
        if entry.get(1) == _KEY:
            yield entry.get(2, b"").decode("utf-8")
