"""Times each event of a turn, and writes turns as a trace for ui.perfetto.dev (the Trace Event format of Chrome).

Knows the events of a turn and their order; nothing of who plays it or how. A span lasts from one event to the next, so
a denoise step or a chunk of frames includes whatever the program did to deliver it. A server writes the spans of its
engines (serving/worker/engine_trace.py) in the same format.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.bundle.claims import claim_file
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import make_folder, write_file
from animegamer_rt.bundle.roles import DENOISER, PLAY_ROLES, PREDICTOR, VAE
from animegamer_rt.errors import ConfigError
from animegamer_rt.events import Done, Event, FrameReady, Progress, StatePredicted

LANES = PLAY_ROLES
PREFETCH = "ahead"
"""The lane, and the worker's thread, of what is done for a turn before its time has come."""
FRAMES = "frames"
TRACE_BEGINS = b'{"displayTimeUnit": "ms", "otherData": {"title": '
MICROSECONDS = 1e6
NO_PIXELS = np.empty((0, 0, 3), np.uint8)
NO_SHOT = np.empty((0, 0), np.float32)


@dataclass(frozen=True, slots=True)
class Span:
    """Work of a lane: start and seconds, both in seconds since the turn began."""

    lane: str
    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnTrace:
    """A turn's events, each with the seconds since the turn was asked for, without the shot and the pixels."""

    marks: Sequence[tuple[float, Event]]

    @property
    def done(self) -> Done:
        """Its last event."""
        last = self.marks[-1][1]
        assert isinstance(last, Done), "the turn did not finish"
        return last

    @property
    def to_state(self) -> float:
        """Seconds until the state was known."""
        return next(at for at, event in self.marks if isinstance(event, StatePredicted))

    @property
    def to_first_frame(self) -> float:
        """Seconds until the first frame was there."""
        return next(at for at, event in self.marks if isinstance(event, FrameReady))

    def spans(self, plan: DenoisePlan) -> list[Span]:
        """Its work, in order: the prediction, every denoise step with what it ran, and the vae's deliveries.

        A frame that came with the one before it (within a millisecond) belongs to that delivery.
        """
        spans: list[Span] = []
        before = 0.0
        for at, event in self.marks:
            match event:
                case StatePredicted():
                    spans.append(Span(PREDICTOR, "predict", before, at - before))
                case Progress():
                    step = plan.steps[event.step - 1]
                    spans.append(Span(DENOISER, f"{step.branch} at {step.timestep}", before, at - before))
                case FrameReady() if at - before > 1e-3 or event.index == 0:
                    spans.append(Span(VAE, f"frames from {event.index}", before, at - before))
            before = at
        return spans


def trace_turn(events: Iterable[Event]) -> TurnTrace:
    """Plays a turn to its end, noting when each event comes."""
    started = time.perf_counter()
    marks: list[tuple[float, Event]] = []
    for event in events:
        at = time.perf_counter() - started
        marks.append((at, _without_arrays(event)))
    return TurnTrace(marks)


def _without_arrays(event: Event) -> Event:
    match event:
        case FrameReady():
            return replace(event, frame=NO_PIXELS)
        case StatePredicted():
            return replace(event, shot=NO_SHOT)
    return event


def check_trace(path: Path) -> None:
    """Check that a trace can be written to `path`, before the work. Raises ConfigError or OutputError."""
    make_folder(path.parent)
    if path.is_dir() or path.suffix == ".svg":
        raise ConfigError("not a file for a trace", where="--trace", found=str(path), expected="a file like trace.json")
    claim_file(path, "a trace", _is_trace, do="give another name with --trace")


def _is_trace(path: Path) -> bool:
    """Whether one of these functions wrote the file. Traces are long, so only their beginning is looked at."""
    with suppress(OSError):
        with path.open("rb") as file:
            return file.read(len(TRACE_BEGINS)) == TRACE_BEGINS
    return False


def write_trace(path: Path, turn: TurnTrace, plan: DenoisePlan, title: str) -> Path:
    """Write one turn, its frames as instants; returns the path. Raises OutputError."""
    frames = [(at, f"frame {event.index}") for at, event in turn.marks if isinstance(event, FrameReady)]
    return _write(path, _chrome(title, turn.spans(plan), (*LANES, FRAMES), frames))


def write_spans(path: Path, spans: Sequence[Span], title: str) -> Path:
    """Write spans of many turns, the first at 0 s, with a lane of its own for prefetched work; returns the path."""
    first = min((span.start for span in spans), default=0.0)
    shifted = [replace(span, start=span.start - first) for span in spans]
    return _write(path, _chrome(title, shifted, (*LANES, PREFETCH)))


def _write(path: Path, trace: dict[str, Any]) -> Path:
    write_file(path, (json.dumps(trace) + "\n").encode())
    return path


def _chrome(
    title: str, spans: Sequence[Span], lanes: Sequence[str], frames: Sequence[tuple[float, str]] = ()
) -> dict[str, Any]:
    """The Trace Event format: complete events ("X") in microseconds, a thread a lane, frames as instants ("i")."""
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
            "ts": round(span.start * MICROSECONDS, 1),
            "dur": round(span.seconds * MICROSECONDS, 1),
        }
        for span in spans
    ]
    instants = [
        {"ph": "i", "s": "t", "name": name, "pid": 1, "tid": len(lanes), "ts": round(at * MICROSECONDS, 1)}
        for at, name in frames
    ]
    return {"displayTimeUnit": "ms", "otherData": {"title": title}, "traceEvents": [*names, *work, *instants]}
