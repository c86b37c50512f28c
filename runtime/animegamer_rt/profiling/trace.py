"""Writes spans of an engine's work as a trace for ui.perfetto.dev (Chrome's Trace Event format)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.bundle.claims import claim_file
from animegamer_rt.bundle.files import make_folder, write_file
from animegamer_rt.bundle.roles import PLAY_ROLES
from animegamer_rt.errors import ConfigError

PREFETCH = "ahead"
"""The lane, and the worker's thread, for work done ahead of a turn."""
TRACE_BEGINS = b'{"displayTimeUnit": "ms", "otherData": {"title": '
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Span:
    """Work in a lane: start and duration in seconds."""

    lane: str
    name: str
    start: float
    seconds: float


def check_trace(path: Path) -> None:
    """Check that a trace can be written to `path`, before the work starts. Raises ConfigError or OutputError."""
    make_folder(path.parent)
    if path.is_dir() or path.suffix == ".svg":
        raise ConfigError("not a trace file", where="trace", found=str(path), expected="a file such as trace.json")
    claim_file(path, "a trace", _is_trace, do="choose another name")


def _is_trace(path: Path) -> bool:
    """Whether `write_spans` wrote the file. Only the beginning is checked, as traces are long."""
    with suppress(OSError):
        with path.open("rb") as file:
            return file.read(len(TRACE_BEGINS)) == TRACE_BEGINS
    return False


def write_spans(path: Path, spans: Sequence[Span], title: str) -> None:
    """Write spans of many turns, the first at 0 s, with a separate lane for prefetched work. Raises OutputError.

    Complete events ("X") in microseconds, one thread per lane.
    """
    first = min((span.start for span in spans), default=0.0)
    lanes = (*PLAY_ROLES, PREFETCH)
    names = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": lane}}
        for tid, lane in enumerate(lanes, 1)
    ]
    work = [
        {
            "ph": "X",
            "name": span.name,
            "cat": span.lane,
            "pid": 1,
            "tid": lanes.index(span.lane) + 1,
            "ts": round((span.start - first) * MICROSECONDS, 1),
            "dur": round(span.seconds * MICROSECONDS, 1),
        }
        for span in spans
    ]
    trace = {"displayTimeUnit": "ms", "otherData": {"title": title}, "traceEvents": [*names, *work]}
    write_file(path, (json.dumps(trace) + "\n").encode())
