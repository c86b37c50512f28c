"""`animegamer-rt bench compare A B`: shows two records of turns side by side, with their ratios and differing settings.

Knows records; nothing of how they were measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from animegamer_rt.errors import ConfigError
from animegamer_rt.untrusted import plain

from .records import Record, read_json

SETTINGS = (
    *("machine", "gpu", "device", "runs_on", "preset", "size", "plan", "branches", "cost_rows", "precision"),
    *("attention", "peer", "variant", "memory_source", "energy_source", "software", "commit", "date"),
)
FIGURES = (
    "seconds_per_turn_p50",
    "seconds_per_turn_p95",
    "seconds_to_state_p50",
    "seconds_to_first_frame_p50",
    "first_prompt_seconds",
    "denoiser_floor_seconds",
    "memory_peak_mib",
    "host_memory_peak_mib",
    "fps",
    "ratio_to_floor",
    "energy_j_per_turn",
)
FIDELITY = {"ssim": 3, "psnr_db": 1}
"""Figures of a plan's fidelity against `exact`, as the bundle holds it, and their digits."""
COMPARABLE = ("machine", "size", "plan")
"""Settings that two records must share for their ratio to say something about the software."""
NOISE = "on a shared machine, figures vary by a tenth and more between runs: trust only ratios within one run"


def compare(paths: Sequence[Path], as_json: bool = False) -> int:
    """Print the figures of two records, as tables or as JSON; returns 0.

    Raises ConfigError if these are not two records of turns.
    """
    if len(paths) != 2:
        raise ConfigError("compare needs two records", found=f"{len(paths)}", do="give two files of bench-results")
    first, second = map(_read, paths)
    if as_json:
        print(json.dumps(_as_json(first, second), indent=1))
        return 0
    table = Table(title="seconds, unless the name has another unit")
    for column in ("figure", "A", "B", "B / A"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, a, b in figures(first, second):
        table.add_row(plain(name), f"{a:.3f}", f"{b:.3f}", f"{b / a:.2f}" if a else "")
    for name, digits in FIDELITY.items():
        table.add_row(f"fidelity {name}", *(_fidelity(record, name, digits) for record in (first, second)), "")
    console = Console(markup=False)
    for label, path, record in zip("AB", paths, (first, second), strict=True):
        told = f"{label}: {path} (n = {record.get('n', 'unknown')} turns)"
        console.print(plain(told), soft_wrap=True, highlight=False)
    if different := [name for name in COMPARABLE if first.get(name) != second.get(name)]:
        console.print(f"The records differ in {', '.join(different)}: the ratios compare more than the software.")
    console.print(table)
    for name, a, b in differences(first, second):
        console.print(plain(f"{name}: A {a}; B {b}"), soft_wrap=True, highlight=False)
    console.print(NOISE, style="dim", soft_wrap=True)
    return 0


def _as_json(first: Record, second: Record) -> dict[str, Any]:
    return {
        "comparable": all(first.get(name) == second.get(name) for name in COMPARABLE),
        "figures": {name: {"a": a, "b": b, "b_over_a": b / a if a else None} for name, a, b in figures(first, second)},
        "fidelity": {"a": first.get("fidelity"), "b": second.get("fidelity")},
        "differences": {name: {"a": a, "b": b} for name, a, b in differences(first, second)},
    }


def figures(first: Record, second: Record) -> Iterator[tuple[str, float, float]]:
    """(name, A, B) of each figure that both records have."""
    for name in FIGURES:
        if _is_number(first.get(name)) and _is_number(second.get(name)):
            yield name, float(first[name]), float(second[name])
    for stage, seconds in first["stages"].items():
        if stage in second["stages"]:
            yield f"{stage} p50", float(seconds["p50"]), float(second["stages"][stage]["p50"])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def differences(first: Record, second: Record) -> Iterator[tuple[str, Any, Any]]:
    """(name, A, B) of each setting in which the records differ."""
    for name in SETTINGS:
        if first.get(name) != second.get(name):
            yield name, first.get(name), second.get(name)


def _fidelity(record: Record, name: str, digits: int) -> str:
    fidelity = record.get("fidelity")
    found = fidelity.get(name) if isinstance(fidelity, dict) else None
    if _is_number(found):
        return f"{found:.{digits}f}"
    return "the reference" if record.get("plan") == "exact" and not record.get("peer") else "not measured"


def _read(path: Path) -> Record:
    record: Record = read_json(path)
    try:
        measured = {name for name, _, _ in figures(record, record)}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        measured = set()
    if "seconds_per_turn_p50" not in measured:
        raise ConfigError("not a record of turns", where=path, do="give one that `animegamer-rt bench` wrote")
    return record
