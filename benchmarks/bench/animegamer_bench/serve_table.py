"""The figures of a `bench serve` record as rows, each beside its goal: for a terminal and for benchmarks/WIRE.md.

Knows such records (kind `wire`); nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from animegamer_rt.profiling.percentiles import FEWEST

Record = dict[str, Any]
COMPUTED = "cpu"
"""Engines that play networks."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure as text. reached: None without a goal."""

    what: str
    where: str
    median: str
    p95: str = ""
    samples: str = ""
    goal: str = ""
    reached: bool | None = None


def rows(record: Record) -> list[Row]:
    """All figures of a record, in the order of measuring."""
    parts = _overhead_rows, _cancel_rows, _transfer_rows, _concurrent_rows, _replay_rows, _idle_rows, _memory_rows
    return [row for part in parts for row in part(record)]


def lines(record: Record) -> Iterator[str]:
    """The rows for a terminal of 80 columns, under a heading for each bundle and engines."""
    heading = f"{'':<48}{'median':>11}{'p95':>11}{'n':>5}"
    for where, group in groupby(rows(record), key=lambda row: row.where):
        yield where if not heading else f"{where:<48}{heading[48:]}"
        heading = ""
        for row in group:
            yield f"  {row.what:<46}{row.median:>11}{row.p95:>11}{row.samples:>5}".rstrip()
            if row.reached is not None:
                yield f"    goal {row.goal}: {'reached' if row.reached else 'missed'}"


def _overhead_rows(record: Record) -> Iterator[Row]:
    goal = record["goals"]["overhead_s"]
    for entry in record["overhead"]:
        where, beyond = place(entry), entry["overhead_s"]
        yield _timed(
            "turn time outside the engines, raw frames", where, beyond, f"<= {_ms(goal)}", beyond["p50"] <= goal
        )
        yield _timed("- of it, outside the worker", where, entry["outside_s"])
        yield _timed("game state, without the engines' time", where, entry["state_overhead_s"])
        yield _timed("game state, from the request", where, entry["state_s"])
        yield _timed("first frame, from the request", where, entry["first_frame_s"])
        yield _timed("whole turn, from the request", where, entry["turn_s"])


def _cancel_rows(record: Record) -> Iterator[Row]:
    for entry in record["cancel"]:
        if entry["cancel_s"] is not None:
            yield _timed("cancelled turn, from `cancel` to its end", place(entry), entry["cancel_s"])


def _transfer_rows(record: Record) -> Iterator[Row]:
    for entry in record["transfer"]:
        what = f"clip as {entry['codec']}, {entry['bytes'] / 1e6:.2f} MB (vae {_ms(entry['vae_s']['p50'])} of it)"
        yield _timed(what, place(entry), entry["clip_s"])


def _concurrent_rows(record: Record) -> Iterator[Row]:
    goal = record["goals"]["lost"]
    for entry in record["crowd"]:
        what = f"{entry['sessions']} session{'s' * (entry['sessions'] > 1)}, {entry['turns_per_s']:.2f} turns/s"
        yield _timed(f"{what}: time between turns", place(entry), entry["interval_s"])
        yield from _waits(entry)
        if entry["sessions"] > 1 and "lost" in entry:
            loss, count = entry["lost"], str(entry["interval_s"]["n"])
            what = f"- throughput lost by {entry['sessions']} sessions against one"
            yield Row(what, place(entry), f"{loss:.1%}", "", count, f"< {goal:.0%}", loss < goal)
    entry, goal = record["stalled"], record["goals"]["stalled_ratio"]
    yield _timed("turn behind a player who reads", place(entry), entry["beside_reader_s"])
    yield _timed("turn behind a player who stopped reading", place(entry), entry["beside_stalled_s"])
    what = f"- slower by (frames dropped: {entry['frames_dropped']})"
    yield Row(what, place(entry), f"{entry['ratio'] - 1:.1%}", "", "", f"< {goal - 1:.0%}", entry["ratio"] < goal)


def _replay_rows(record: Record) -> Iterator[Row]:
    for entry in record["replay"]:
        what = f"a recorded game, {entry['think_s']['p50']:.1f} s of thinking before a turn: whole turn"
        yield _timed(what, place(entry), entry["turn_s"])
        yield from _waits(entry)


def _waits(entry: dict[str, Any]) -> Iterator[Row]:
    """How long a player waits."""
    within, count = f"- turns within {entry['deadline_s']:.1f} s", str(entry["turn_s"]["n"])
    yield Row(within, place(entry), f"{entry['goodput']:.0%}", "", count)
    yield _timed("- game state, from the request", place(entry), entry["state_s"])
    yield _timed("- first frame, from the request", place(entry), entry["first_frame_s"])


def _idle_rows(record: Record) -> Iterator[Row]:
    for entry in record["idle"]:
        share, goal = entry["processor_share"], record["goals"]["processor_share"]
        what = f"idle server, share of a core; a player {entry['player']}"
        yield Row(what, place(entry), f"{share:.2%}", "", "", f"<= {goal:.1%}", share <= goal)


def _memory_rows(record: Record) -> Iterator[Row]:
    goal = record["goals"]["mib_per_session"]
    for entry in record["memory"]:
        size, each = entry.get("mib_per_session"), "server memory of an idle session"
        if size is None:
            yield Row(each, place(entry), "not measured")
            continue
        yield Row(each, place(entry), f"{size:.3f} MiB", "", str(entry["sessions"]), f"<= {goal:g} MiB", size <= goal)
        connection = f"{entry['mib_per_connection']:.3f} MiB"
        yield Row("server memory of a connection", place(entry), connection, "", str(entry["connections"]))


def _timed(what: str, where: str, series: dict[str, Any], goal: str = "", reached: bool | None = None) -> Row:
    return Row(what, where, _ms(series["p50"]), tail(series, _ms), str(series["n"]), goal, reached)


def tail(series: dict[str, Any], told: Callable[[float], str]) -> str:
    """The 95th percentile as text if the count carries it, else the longest."""
    if series["n"] >= FEWEST[95]:
        return told(series["p95"])
    return f"max {told(series['max'])}"


def place(entry: dict[str, Any]) -> str:
    """The bundle, engines and, where networks are played, plans that a figure is of."""
    plans = entry.get("plans", []) if entry["engines"] == COMPUTED else []  # simulated engines wait for any plan
    shared = [f"half each: {' and '.join(plans)}"] if len(plans) > 1 else plans
    return ", ".join([entry["size"], entry["engines"], *shared])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
