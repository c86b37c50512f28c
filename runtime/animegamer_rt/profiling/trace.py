"""A turn on a clock: when each of its events came, as spans, as a Chrome/Perfetto trace, and as a picture.

Knows the events of a turn and what their order means; nothing of who plays it or how. Its spans are the waits between
events, so a step or a chunk carries whatever the program did to deliver it. Spans of many turns that a server has noted
of its engines (worker/watched.py) are written in the same form.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import make_folder, write_file
from animegamer_rt.errors import ConfigError
from animegamer_rt.events import Done, Event, FrameReady, Progress, StatePredicted

from .svg import COLOURS, svg

LANES = ("predictor", "denoiser", "vae")
PREFETCH = "ahead"
"""The lane, and the worker's thread, of what is done for a turn before its time has come."""
FRAMES = "frames"
COLOUR_AHEAD = "#b07aa1"
MICROSECONDS = 1e6
NO_PIXELS = np.empty((0, 0, 3), np.uint8)
WIDTH, LEFT, LANE, TOP = 900, 90, 44, 56


@dataclass(frozen=True, slots=True)
class Span:
    """Work of a lane: start and seconds, both in seconds since the turn began."""

    lane: str
    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnTrace:
    """A turn's events, each with the seconds since the turn was asked for; frames are noted without their pixels."""

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
                    spans.append(Span("predictor", "predict", before, at - before))
                case Progress():
                    step = plan.steps[event.step - 1]
                    spans.append(Span("denoiser", f"{step.branch} at {step.timestep}", before, at - before))
                case FrameReady() if at - before > 1e-3 or event.index == 0:
                    spans.append(Span("vae", f"frames from {event.index}", before, at - before))
            before = at
        return spans


def trace_turn(events: Iterable[Event]) -> TurnTrace:
    """Plays a turn to its end, noting when each event comes."""
    started, marks = time.perf_counter(), []
    for event in events:
        at = time.perf_counter() - started
        marks.append((at, replace(event, frame=NO_PIXELS) if isinstance(event, FrameReady) else event))
    return TurnTrace(marks)


def check_trace(path: Path) -> None:
    """Raises ConfigError or OutputError where no trace can be written: to be said before the work."""
    make_folder(path.parent)
    expected = "the file of the trace, as in trace.json; its picture, trace.svg, is written beside it"
    if path.is_dir() or path.suffix == ".svg":
        raise ConfigError("not a file for a trace", where="--trace", found=str(path), expected=expected)


def write_trace(path: Path, turn: TurnTrace, plan: DenoisePlan, title: str) -> tuple[Path, Path]:
    """The turn as JSON for chrome://tracing and ui.perfetto.dev, and as an SVG beside it; returns both paths."""
    frames = [(at, f"frame {event.index}") for at, event in turn.marks if isinstance(event, FrameReady)]
    marks = {"state": turn.to_state, "first frame": turn.to_first_frame, "done": turn.marks[-1][0]}
    return _write(path, title, turn.spans(plan), (*LANES, FRAMES), frames, marks)


def write_spans(path: Path, spans: Sequence[Span], title: str) -> tuple[Path, Path]:
    """Spans of turns one after the other as `write_trace` writes a turn, what was done ahead in a lane of its own."""
    first = min((span.start for span in spans), default=0.0)
    return _write(path, title, [replace(span, start=span.start - first) for span in spans], (*LANES, PREFETCH))


def _write(
    path: Path,
    title: str,
    spans: Sequence[Span],
    lanes: Sequence[str],
    frames: Sequence[tuple[float, str]] = (),
    marks: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Path, Path]:
    picture = path.with_suffix(".svg")
    write_file(path, (json.dumps(_chrome(title, spans, lanes, frames)) + "\n").encode())
    write_file(picture, _timeline(title, spans, lanes, frames, marks).encode())
    return path, picture


def _chrome(
    title: str, spans: Sequence[Span], lanes: Sequence[str], frames: Sequence[tuple[float, str]]
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


def _timeline(
    title: str,
    spans: Sequence[Span],
    lanes: Sequence[str],
    frames: Sequence[tuple[float, str]],
    marks: Mapping[str, float],
) -> str:
    total = max([*(span.start + span.seconds for span in spans), *marks.values()], default=1.0)
    scale = (WIDTH - LEFT - 20) / total
    height = TOP + LANE * len(lanes) + 34
    parts = [f'<text x="12" y="{TOP + LANE * row + 20}">{lane}</text>' for row, lane in enumerate(lanes)]
    for span in spans:
        x, y = LEFT + span.start * scale, TOP + LANE * lanes.index(span.lane)
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{max(1.0, span.seconds * scale - 1):.1f}" height="30" '
            f'fill="{COLOURS.get(span.lane, COLOUR_AHEAD)}">'
            f"<title>{escape(span.name)}: {span.seconds * 1000:.0f} ms</title></rect>"
        )
    for at, _ in frames:
        x, y = LEFT + at * scale, TOP + LANE * (len(lanes) - 1)
        parts.append(f'<path d="M{x:.1f} {y}v30" stroke="#333" stroke-width="1.5"/>')
    if not marks:
        parts.append(f'<text x="{WIDTH - 20}" y="{height - 10}" text-anchor="end" fill="#333">{total:.2f} s</text>')
    for label, at in marks.items():
        x = LEFT + at * scale
        anchor = "end" if at > 0.6 * total else "start"
        parts.append(f'<path d="M{x:.1f} {TOP - 6}V{height - 26}" stroke="#e15759" stroke-dasharray="4 4"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{height - 10 if label != "first frame" else TOP - 10}" text-anchor="{anchor}" '
            f'fill="#e15759">{label} {at:.2f} s</text>'
        )
    return svg(WIDTH, height, title, parts)
