"""Draws the plots of the docs from the records in benchmarks/results, with matplotlib.

`python benchmarks/plots.py` writes them next to the records: wire.svg, calibrate.svg and one for each trace-*.json. The
same records give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from animegamer_bench.records import Record, read_json, read_records
from animegamer_bench.table import place

RESULTS = Path(__file__).resolve().parent / "results"
COLOURS = {"predictor": "#4e79a7", "denoiser": "#f28e2b", "vae": "#59a14f", "ahead": "#b07aa1", "frames": "#333333"}
BAR, SPREAD, GOAL = "#4e79a7", "#9c755f", "#e15759"
WIDTH = 8.6
"""Width of every plot, in inches."""
SKIPPING = "-skipping"
"""Name suffix of a plan that skips blocks."""
STYLE: Any = {
    "svg.hashsalt": "animegamer-rt",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw_all(results: Path) -> Iterator[Path]:
    """Draws every plot for which the folder has a record; yields their paths."""
    drawings: list[tuple[str, Figure]] = []
    for name, kind, draw in (
        ("wire", "wire", serving_plot),
        ("calibrate", "calibrate", plan_plot),
    ):
        if records := read_records(results, kind):
            drawings.append((name, draw(records[-1])))
    drawings += [(path.stem, trace_plot(read_json(path))) for path in sorted(results.glob("trace-*.json"))]
    for name, figure in drawings:
        path = results / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        yield path


def serving_plot(record: Record) -> Figure:
    """The cost of serving per turn: medians as bars, 95th percentiles as lines, goals dashed."""
    overhead = [(place(one), one["overhead_s"]) for one in record["overhead"]]
    transfer = [(f"{one['size']}, {one['codec']}", one["clip_s"]) for one in record["transfer"]]
    lost = [
        (f"{one['sessions']} sessions, {place(one)}", 100 * one["lost"])
        for one in record["crowd"]
        if one["sessions"] > 1 and "lost" in one
    ]
    memory = [(place(one), one["mib_per_session"]) for one in record["memory"] if "mib_per_session" in one]
    groups = [overhead, transfer, lost, memory]
    figure, panels = _figure([0.32 * len(group) + 0.75 for group in groups])
    goals, (times, clips, crowd, idle) = record["goals"], panels
    _times(times, overhead, 1e3 * goals["overhead_s"])
    head = f"What serving adds: {record['machine']}\n(simulated:S: engines that only wait S seconds a turn)"
    times.set_title(f"{head}\n\nTime of a turn outside the engines")
    _times(clips, transfer)
    clips.set_title("A clip, from the end of denoising to its last byte")
    _bars(crowd, lost, "%", 100 * goals["lost"])
    crowd.set_xlabel("throughput lost against one session, %")
    crowd.set_title("Throughput lost to several sessions")
    _bars(idle, memory, "MiB", goals["mib_per_session"])
    idle.set_xlabel("memory of the server process, MiB")
    idle.set_title("Memory of an idle session")
    return figure


def plan_plot(record: Record) -> Figure:
    """Fidelity against cost of a search's plans; the chosen ones are named."""
    points = [{"cost": point["rows"], "skipped": "", **point} for point in record["points"]]
    plain = [point for point in points if not point["skipped"]]
    figure, (axes,) = _figure([4.4])
    axes.plot([one["cost"] for one in plain], [one["ssim"] for one in plain], "o-", color=BAR, label="every block")
    if skipped := [point for point in points if point["skipped"]]:
        costs, ssims = [one["cost"] for one in skipped], [one["ssim"] for one in skipped]
        axes.plot(costs, ssims, "o", color=BAR, markerfacecolor="white", label="some blocks skipped")
        axes.legend(loc="lower right")
    for point in points:
        same = [name for name, cost in record["chosen"].items() if cost == point["cost"]]
        for name in (name for name in same if name.endswith(SKIPPING) == bool(point["skipped"])):
            axes.plot(point["cost"], point["ssim"], "o", color=GOAL, markersize=8)
            text = f"{name}: SSIM {point['ssim']:.3f},\n{point['denoise_seconds_p50']:.2f} s of denoising"
            place = (10, -28) if not point["skipped"] else (-20, -48)
            axes.annotate(text, (point["cost"], point["ssim"]), place, textcoords="offset points", color=GOAL)
    lowest = min(point["ssim"] for point in points)
    axes.set_ylim(lowest - 0.2 * (1 - lowest), 1.0)
    axes.grid(axis="y", color="#dddddd")
    axes.set_xlabel(
        f"network evaluations of a turn (two for each guided step; the plan exact has {record['exact_rows']})"
    )
    axes.set_ylabel("SSIM of the frames against exact")
    axes.set_title(f"Fidelity against cost: {record['size']}")
    return figure


def trace_plot(trace: dict[str, Any]) -> Figure:
    """A trace's spans in its lanes, frames as ticks."""
    events = trace["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    figure, (axes,) = _figure([0.5 * len(lanes) + 1.1])
    for row, (tid, name) in enumerate(lanes.items()):
        here = [event for event in events if event.get("tid") == tid]
        spans = [(event["ts"] / 1e6, event["dur"] / 1e6) for event in here if event["ph"] == "X"]
        axes.broken_barh(spans, (row - 0.35, 0.7), color=COLOURS.get(name, BAR), edgecolor="white", linewidth=0.8)
        instants = [event["ts"] / 1e6 for event in here if event["ph"] == "i"]
        axes.vlines(instants, row - 0.35, row + 0.35, color=COLOURS.get(name, BAR))
    axes.set_yticks(range(len(lanes)), list(lanes.values()))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.set_title(trace["otherData"]["title"])
    return figure


def _times(axes: Axes, bars: Sequence[tuple[str, dict[str, Any]]], goal: float | None = None) -> None:
    """Bars of series in seconds, drawn in milliseconds with a line to the 95th percentile, or to the maximum of few."""
    ends = [1e3 * (one["max"] if one["p95"] is None else one["p95"]) for _, one in bars]
    _bars(axes, [(name, 1e3 * series["p50"]) for name, series in bars], "ms", goal, ends)
    axes.set_xlabel("ms (bar: median; line: to the 95th percentile)")


def _bars(
    axes: Axes,
    bars: Sequence[tuple[str, float]],
    unit: str,
    goal: float | None = None,
    spreads: Sequence[float] | None = None,
) -> None:
    names, values = zip(*bars, strict=True)
    ends = spreads or [max(0.0, value) for value in values]
    axes.barh(names, values, height=0.6, color=BAR)
    if spreads is not None:
        axes.hlines(range(len(bars)), values, ends, color=SPREAD, linewidth=2)
    for row, (value, end) in enumerate(zip(values, ends, strict=True)):
        axes.text(end, row, f"  {value:.3g} {unit}", va="center")
    if goal is not None:
        axes.axvline(goal, color=GOAL, linestyle="--", label=f"goal: at most {goal:g} {unit}", zorder=0.5)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0))
    axes.set_xlim(min(0.0, *values) * 1.1, 1.15 * max(*ends, goal or 0.0))
    axes.invert_yaxis()


def _figure(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """A figure of stacked panels with these heights in inches."""
    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    return figure, list(panels[:, 0])


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws the plots of one folder."""
    parser = argparse.ArgumentParser(description="Draw the plots of a folder of records.")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: benchmarks/results")
    for path in draw_all(parser.parse_args(arguments).results):
        print(path)


if __name__ == "__main__":
    main()
