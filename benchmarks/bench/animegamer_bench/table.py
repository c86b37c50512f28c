"""Prints records: one of turns after its run, and one of a server with its goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .records import FEWEST, Record

COMPUTED = "cpu"
"""Server devices that run real networks."""


def print_record(record: Mapping[str, Any]) -> None:
    """A record of turns, for a terminal of 80 columns."""
    top = next((name for name in ("p99", "p95") if record[f"seconds_per_turn_{name}"] is not None), "max")
    turn = {"p50": record["seconds_per_turn_p50"], top: record[f"seconds_per_turn_{top}"]}
    print(f"{'seconds':<12}{'median':>10}{top:>10}   (n = {record['n']} turns)")
    for stage, seconds in {**record["stages"], "turn": turn}.items():
        print(f"{stage:<12}{seconds['p50']:>10.3f}{seconds[top]:>10.3f}")
    for what, value in _told(record):
        print(f"{what:<17} {value}")
    if record["suite"] is None:
        print("This is a rough figure. One to cite: animegamer-rt bench run --suite 1")
    elif record["unsteady"]:
        print("Unsteady: repeat on an idle machine before citing.")


def _told(record: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name in ("first_turn", "turn_10_and_later"):
        if found := record[name]:
            yield name.replace("_", " "), f"{found['p50']:.3f} s (median, n = {found['n']})"
    yield "sustained", f"{record['sustained_seconds_per_turn']:.3f} s a turn"
    yield "state predicted", f"{record['seconds_to_state_p50']:.2f} s after the instruction (median)"
    yield "first frame", f"{record['seconds_to_first_frame_p50']:.2f} s after the instruction (median)"
    yield "speed", f"{record['fps']} frames/s, {record['real_time_factor']} x real time"
    yield "start of process", f"{record['start_to_prompt_seconds']:.2f} s until the first instruction can be typed"
    yield "peak memory", f"{record['memory_peak_mib']} MiB, {record['memory_source']}"
    yield from (record["gpu"] or {}).items()
    words = {True: "passed", False: "FAILED: the frames differ from this plan's", None: "not judged"}
    yield "quality gate", words[record["quality_gate"]["passed"]]
    yield from (("unsteady", reason) for reason in record["unsteady"])


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a server as text. reached: None without a goal."""

    what: str
    where: str
    median: str
    p95: str = ""
    samples: str = ""
    goal: str = ""
    reached: bool | None = None


def lines(record: Record) -> Iterator[str]:
    """A server's rows for a terminal of 80 columns, with a heading per bundle and engines."""
    heading = f"{'':<48}{'median':>11}{'p95':>11}{'n':>5}"
    for where, group in groupby(rows(record), key=lambda row: row.where):
        yield where if not heading else f"{where:<48}{heading[48:]}"
        heading = ""
        for row in group:
            yield f"  {row.what:<46}{row.median:>11}{row.p95:>11}{row.samples:>5}".rstrip()
            if row.reached is not None:
                yield f"    goal {row.goal}: {'reached' if row.reached else 'missed'}"


def rows(record: Record) -> Iterator[Row]:
    """All figures of a server's record (kind `wire`), in the order of measurement."""
    goals = record["goals"]
    for entry in record["overhead"]:
        goal, median = goals["overhead_s"], entry["overhead_s"]["p50"]
        beyond = "turn time outside the engines, raw frames"
        yield _timed(beyond, entry, "overhead_s", f"<= {_ms(goal)}", median <= goal)
        yield _timed("- of it, outside the worker", entry, "outside_s")
        yield _timed("game state, without the engines' time", entry, "state_overhead_s")
        yield _timed("game state, from the request", entry, "state_s")
        yield _timed("first frame, from the request", entry, "first_frame_s")
        yield _timed("whole turn, from the request", entry, "turn_s")
    for entry in record["cancel"]:
        if entry["cancel_s"] is not None:
            yield _timed("cancelled turn, from `cancel` to its end", entry, "cancel_s")
    for entry in record["transfer"]:
        what = f"clip as {entry['codec']}, {entry['bytes'] / 1e6:.2f} MB (vae {_ms(entry['vae_s']['p50'])} of it)"
        yield _timed(what, entry, "clip_s")
    for entry in record["crowd"]:
        what = f"{entry['sessions']} session{'s' * (entry['sessions'] > 1)}, {entry['turns_per_s']:.2f} turns/s"
        yield _timed(f"{what}: time between turns", entry, "interval_s")
        yield from _waits(entry)
        if entry["sessions"] > 1 and "lost" in entry:
            loss, goal, count = entry["lost"], goals["lost"], str(entry["interval_s"]["n"])
            what = f"- throughput lost by {entry['sessions']} sessions against one"
            yield Row(what, place(entry), f"{loss:.1%}", "", count, f"< {goal:.0%}", loss < goal)


def _waits(entry: Mapping[str, Any]) -> Iterator[Row]:
    """Waiting times of players."""
    within, count = f"- turns within {entry['deadline_s']:.1f} s", str(entry["turn_s"]["n"])
    yield Row(within, place(entry), f"{entry['goodput']:.0%}", "", count)
    yield _timed("- game state, from the request", entry, "state_s")
    yield _timed("- first frame, from the request", entry, "first_frame_s")


def _timed(what: str, entry: Mapping[str, Any], name: str, goal: str = "", reached: bool | None = None) -> Row:
    series = entry[name]
    return Row(what, place(entry), _ms(series["p50"]), tail(series, _ms), str(series["n"]), goal, reached)


def tail(series: Mapping[str, Any], told: Callable[[float], str]) -> str:
    """The 95th percentile as text if the count allows, else the maximum."""
    return told(series["p95"]) if series["n"] >= FEWEST[95] else f"max {told(series['max'])}"


def place(entry: Mapping[str, Any]) -> str:
    """The bundle, engines and, with real networks, plans of a figure."""
    plans = entry.get("plans", []) if entry["engines"] == COMPUTED else []  # simulated engines wait for any plan
    shared = [f"half each: {' and '.join(plans)}"] if len(plans) > 1 else plans
    return ", ".join([entry["size"], entry["engines"], *shared])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"
