"""The figures of a `bench serve` record: as rows of words beside their goals, and as a plot that needs no library.

Knows such records (see server/bench), nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from animegamer_rt.bench.chart import Record
from animegamer_rt.bundle.files import write_file
from animegamer_rt.profiling.svg import svg

WIDTH, LEFT, RIGHT, BAR, HEAD, GAP = 860, 300, 170, 24, 30, 14
COLOUR, SPREAD, GOAL = "#4e79a7", "#9ab4d0", "#e15759"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure in words; `reached` is None where there is no goal."""

    what: str
    where: str
    median: str
    p95: str = ""
    samples: str = ""
    goal: str = ""
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the plot: its median, and its 95th percentile if it has one."""

    label: str
    median: float
    p95: float | None = None


def rows(record: Record) -> list[Row]:
    """All figures of a record."""
    return [*_overhead_rows(record), *_transfer_rows(record), *_crowd_rows(record), *_memory_rows(record)]


def lines(record: Record) -> Iterator[str]:
    """The rows for a terminal."""
    for row in rows(record):
        verdict = "" if row.reached is None else f"goal {row.goal}: {'reached' if row.reached else 'missed'}"
        yield f"{row.what:<46} {row.where:<28}{row.median:>12}{row.p95:>12}  {row.samples:<8}{verdict}".rstrip()


def write_wire_chart(path: Path, record: Record) -> Path:
    """Write the plot of one record; returns the path."""
    parts, y = [f'<text x="12" y="38" font-size="10" fill="#777">{escape(str(record["machine"]))}</text>'], 46.0
    for title, unit, bars, goal in _groups(record):
        parts += _group(title, unit, bars, goal, y)
        y += HEAD + BAR * len(bars) + GAP
    write_file(path, svg(WIDTH, y, "What serving adds: median to 95th percentile", parts).encode())
    return path


def _overhead_rows(record: Record) -> Iterator[Row]:
    goal = record["goals"]["overhead_s"]
    for entry in record["overhead"]:
        where, beyond = _where(entry), entry["overhead_s"]
        yield _timed("a turn beyond its engines, raw frames", where, beyond, f"<= {_ms(goal)}", beyond["p50"] <= goal)
        yield _timed("- of it, outside the worker's turn", where, entry["outside_s"])
        yield _timed("game state, beyond the predictor", where, entry["state_overhead_s"])
        yield _timed("game state, from the request", where, entry["state_s"])
        yield _timed("first frame, from the request", where, entry["first_frame_s"])
        yield _timed("whole turn", where, entry["turn_s"])


def _transfer_rows(record: Record) -> Iterator[Row]:
    for entry in record["transfer"]:
        what = f"clip as {entry['codec']}, {entry['bytes'] / 1e6:.2f} MB (vae {_ms(entry['vae_s']['p50'])} of it)"
        yield _timed(what, _where(entry), entry["clip_s"])


def _crowd_rows(record: Record) -> Iterator[Row]:
    goal = record["goals"]["lost"]
    for entry in record["crowd"]:
        what = f"{entry['sessions']} session{'s' * (entry['sessions'] > 1)}, {entry['turns_per_s']:.2f} turns/s"
        yield _timed(f"{what}: between turns", _where(entry), entry["interval_s"])
        if entry["sessions"] > 1:
            lost, count = entry["lost"], str(entry["interval_s"]["n"])
            what = f"- throughput lost by {entry['sessions']} sessions against one"
            yield Row(what, _where(entry), f"{lost:.1%}", "", count, f"< {goal:.0%}", lost < goal)
    entry, goal = record["stalled"], record["goals"]["stalled_ratio"]
    yield _timed("two players' turns, the other reads", _where(entry), entry["beside_reader_s"])
    yield _timed("two players' turns, the other has stalled", _where(entry), entry["beside_stalled_s"])
    what = f"- slower by (frames dropped for it: {entry['frames_dropped']})"
    yield Row(what, _where(entry), f"{entry['ratio'] - 1:.1%}", "", "", f"< {goal - 1:.0%}", entry["ratio"] < goal)


def _memory_rows(record: Record) -> Iterator[Row]:
    goal = record["goals"]["mib_per_session"]
    for entry in record["memory"]:
        size, each = entry.get("mib_per_session"), "front's memory: an idle session with a turn"
        if size is None:
            yield Row(each, _where(entry), "not measured")
            continue
        yield Row(each, _where(entry), f"{size:.3f} MiB", "", str(entry["sessions"]), f"<= {goal:g} MiB", size <= goal)
        connection = f"{entry['mib_per_connection']:.3f} MiB"
        yield Row("front's memory: a connection", _where(entry), connection, "", str(entry["connections"]))


def _groups(record: Record) -> Iterator[tuple[str, str, list[Bar], float | None]]:
    goals = record["goals"]
    yield "A turn beyond its engines", "ms", _bars(record["overhead"], "overhead_s"), 1e3 * goals["overhead_s"]
    for size in dict.fromkeys(entry["size"] for entry in record["transfer"]):
        entries = [entry for entry in record["transfer"] if entry["size"] == size]
        yield f"A clip's way, {size}", "ms", _bars(entries, "clip_s", "codec"), None
    crowds = [entry for entry in record["crowd"] if entry["sessions"] > 1]
    bars = [Bar(f"{entry['sessions']} sessions, {_where(entry)}", 100 * entry["lost"]) for entry in crowds]
    yield "Throughput lost against one session", "%", bars, 100 * goals["lost"]
    sizes = [entry for entry in record["memory"] if "mib_per_session" in entry]
    if sizes:
        bars = [Bar(_where(entry), entry["mib_per_session"]) for entry in sizes]
        yield "The front's memory an idle session", "MiB", bars, goals["mib_per_session"]


def _bars(entries: Sequence[dict[str, Any]], figure: str, label: str | None = None) -> list[Bar]:
    return [
        Bar(str(entry[label]) if label else _where(entry), 1e3 * entry[figure]["p50"], 1e3 * entry[figure]["p95"])
        for entry in entries
    ]


def _group(title: str, unit: str, bars: Sequence[Bar], goal: float | None, y: float) -> Iterator[str]:
    longest = max([1e-9, goal or 0.0, *(max(bar.median, bar.p95 or 0.0) for bar in bars)])
    scale = (WIDTH - LEFT - RIGHT) / longest
    yield f'<text x="12" y="{y + 18:.1f}" font-weight="bold">{escape(title)}</text>'
    for number, bar in enumerate(bars):
        top = y + HEAD + BAR * number
        width = scale * max(0.0, bar.median)
        end = LEFT + max(width, scale * (bar.p95 or 0.0))
        text = f"{_short(bar.median)} {unit}" + (f" (p95 {_short(bar.p95)})" if bar.p95 is not None else "")
        yield f'<text x="24" y="{top + 13:.1f}">{escape(bar.label)}</text>'
        yield f'<rect x="{LEFT}" y="{top:.1f}" width="{width:.1f}" height="17" fill="{COLOUR}"/>'
        if bar.p95 is not None:
            yield f'<path d="M{LEFT + width:.1f} {top + 8.5:.1f}H{end:.1f}" stroke="{SPREAD}" stroke-width="5"/>'
        yield f'<text x="{end + 6:.1f}" y="{top + 13:.1f}" font-size="12">{escape(text)}</text>'
    if goal is not None:
        x, bottom = LEFT + goal * scale, y + HEAD + BAR * len(bars)
        yield f'<path d="M{x:.1f} {y + 22:.1f}V{bottom:.1f}" stroke="{GOAL}" stroke-width="2" stroke-dasharray="5 4"/>'
        label = f"goal {goal:g} {unit}"
        yield f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle" font-size="11" fill="{GOAL}">{label}</text>'


def _timed(what: str, where: str, series: dict[str, Any], goal: str = "", reached: bool | None = None) -> Row:
    return Row(what, where, _ms(series["p50"]), _ms(series["p95"]), str(series["n"]), goal, reached)


def _where(entry: dict[str, Any]) -> str:
    return f"{entry['size']}, {entry['engines']}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
