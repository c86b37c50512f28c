"""Prints records of turns: one for a terminal after its run, many as a table (`animegamer-rt bench show`)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from animegamer_rt.errors import ConfigError
from animegamer_rt.untrusted import plain

from .compare import read_turns
from .presets import QUICK
from .records import Record

COLUMNS = (
    *("date", "commit", "machine", "instruction_sets", "device", "bundle", "fingerprint", "plan", "suite", "preset"),
    *("peer", "origin", "precision", "attention", "n", "steady", "gate_passed"),
    *("seconds_per_turn_p50", "seconds_per_turn_p90"),
    *("seconds_per_turn_p95", "seconds_per_turn_p99", "seconds_per_turn_max", "sustained_seconds_per_turn"),
    *("seconds_to_state_p50", "seconds_to_first_frame_p50", "fps", "memory_peak_mib", "energy_j_per_turn"),
)
IN_MARKDOWN = (
    *("machine", "bundle", "plan", "suite", "peer", "origin", "precision", "attention", "n", "steady"),
    *("seconds_per_turn_p50", "seconds_per_turn_p95", "seconds_to_state_p50", "memory_peak_mib", "commit", "date"),
)
"""A page is narrower than a spreadsheet, so what none of the records has is left out."""


def print_record(record: Mapping[str, Any]) -> None:
    """For a terminal of 80 columns."""
    top = next((name for name in ("p99", "p95") if record[f"seconds_per_turn_{name}"] is not None), "max")
    print(f"{'seconds':<12}{'median':>10}{top:>10}   (n = {record['n']} turns)")
    for stage, seconds in record["stages"].items():
        print(f"{stage:<12}{seconds['p50']:>10.3f}{seconds[top]:>10.3f}")
    print(f"{'turn':<12}{record['seconds_per_turn_p50']:>10.3f}{record[f'seconds_per_turn_{top}']:>10.3f}")
    for name in ("first_turn", "turn_10_and_later"):
        if found := record[name]:
            print(f"{name.replace('_', ' '):<18}{found['p50']:.3f} s (median, n = {found['n']})")
    print(f"sustained         {record['sustained_seconds_per_turn']:.3f} s a turn")
    print(f"state predicted   {record['seconds_to_state_p50']:.2f} s after the instruction (median)")
    print(f"first frame       {record['seconds_to_first_frame_p50']:.2f} s after the instruction (median)")
    print(f"speed             {record['fps']} frames/s, {record['real_time_factor']} x real time")
    if record["denoiser_floor_seconds"] is not None:
        bound, ratio = record["denoiser_floor_seconds"], record["ratio_to_floor"]
        print(f"roofline bound    {bound:.3f} s of denoising; measured: {ratio} x the bound")
        print(f"{'':<18}({record['floor_source']})")
    elif record["floor_source"] is not None:
        print(f"roofline bound    {record['floor_source']}")
    print(f"start of process  {record['start_to_prompt_seconds']:.2f} s until the first instruction can be typed")
    print(f"peak memory       {record['memory_peak_mib']} MiB, {record['memory_source']}")
    joules, source = record["energy_j_per_turn"], record["energy_source"]
    print(f"energy            {source}" if joules is None else f"energy            {joules:.1f} J per turn, {source}")
    for name, value in (record["gpu"] or {}).items():
        print(f"{name:<17} {value}")
    words = {True: "passed", False: "FAILED: the frames are not those of this plan", None: "not judged"}
    print(f"quality gate      {words[record['quality_gate']['passed']]}")
    for reason in record["unsteady"]:
        print(f"unsteady          {reason}")
    if record["suite"] is None:
        what = "a quick look" if record["preset"] == QUICK else "of no suite"
        print(f"This is {what}. A figure to cite: animegamer-rt bench run --suite 1")
    elif record["unsteady"]:
        print("Unsteady: run it again on a quiet machine before you cite it.")


def show(paths: Sequence[Path], wanted: str) -> int:
    """Print records in one of FORMATS; returns 0. Raises ConfigError for a file that is none."""
    print(WRITERS[wanted]([_row(path) for path in paths]), end="")
    return 0


def _row(path: Path) -> Record:
    """A record's COLUMNS, in order. precision: the denoiser's. steady, gate_passed: null where it was not judged."""
    record = read_turns(path)
    try:
        told = {
            **record,
            "instruction_sets": " ".join(record.get("instruction_sets") or []) or None,
            "precision": (record.get("precision") or {}).get("denoiser"),
            "steady": not record["unsteady"] if "unsteady" in record else None,
            "gate_passed": (record.get("quality_gate") or {}).get("passed"),
        }
    except (AttributeError, TypeError) as error:
        raise ConfigError("not a record of turns", where=path, found="a field of another form") from error
    found = {name: told.get(name) for name in COLUMNS}
    return {name: one if isinstance(one, int | float | None) else plain(str(one)) for name, one in found.items()}


def _markdown(rows: Sequence[Record]) -> str:
    names = [name for name in IN_MARKDOWN if any(one[name] is not None for one in rows)]
    cells = [names, ["---"] * len(names), *([_cell(one[name]) for name in names] for one in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value).replace("|", "\\|")


def _csv(rows: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _json(rows: Sequence[Record]) -> str:
    return json.dumps(rows, indent=1) + "\n"


WRITERS: Mapping[str, Callable[[Sequence[Record]], str]] = MappingProxyType(
    {"md": _markdown, "csv": _csv, "json": _json}
)
"""Name in FORMATS -> what writes it."""
