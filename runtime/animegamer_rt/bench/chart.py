"""The plot of benchmark records: a bar a measurement, stacked by stage, as an SVG that needs no plotting library.

Knows records (see `bench`), nothing of how they were measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import write_file
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.svg import COLOURS, svg

Record = dict[str, Any]
OURS = "animegamer-rt"
WIDTH, LEFT, ROW, TOP = 860, 300, 34, 56
SPACE = 6
"""Between what stands side by side."""
LETTER = 8
"""Pixels that a letter of a name takes at most, on the average."""


def read_records(folder: Path, kind: str = "turn") -> list[Record]:
    """All records of a kind of measurement in a folder, the oldest first; one that names no kind is of turns.

    Other files that lie there, a turn's trace for one, have no date and are passed over. Raises ConfigError for a file
    that is no JSON.
    """
    found = map(read_json, sorted(folder.glob("*.json")))
    chosen = [
        record
        for record in found
        if isinstance(record, dict) and "date" in record and record.get("kind", "turn") == kind
    ]
    return sorted(chosen, key=lambda record: str(record["date"]))


def read_json(path: Path) -> Any:
    """What a file of JSON holds. Raises ConfigError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = "give a file that `animegamer-rt bench` wrote"
        raise ConfigError("the record cannot be read", where=path, found=found, do=do) from error


def newest(records: Sequence[Record]) -> list[Record]:
    """The newest record of each machine, device, what it was told, bundle, plan and peer; slowest plan first.

    Where several variants of one precision were timed, the fastest of their newest. A bundle that took
    another's name leaves it no record, on any machine: what was measured then cannot be repeated now.
    """
    todays = {record["size"]: record.get("fingerprint") for record in records}
    records = [record for record in records if record.get("fingerprint") == todays[record["size"]]]
    latest = {(*_whose(record), record.get("variant")): record for record in records}
    fastest: dict[tuple[Any, ...], Record] = {}
    for record in sorted(latest.values(), key=lambda record: -float(record["seconds_per_turn_p50"])):
        fastest[_whose(record)] = record
    return sorted(fastest.values(), key=lambda record: (record["size"], -record["seconds_per_turn_p50"]))


def _whose(record: Record) -> tuple[Any, ...]:
    told = [record["precision"]["denoiser"]] if record.get("variant") else _told(record)
    return record["machine"], record.get("device", "cpu"), record["size"], record["plan"], record["peer"], *told


def _told(record: Record) -> list[str]:
    """What `--precision` and `--attention` were, which only PyTorch can be told."""
    if not str(record.get("device")).startswith("torch") or record.get("variant") or record["peer"]:
        return []
    attention = record.get("attention") or "torch"
    return [record["precision"]["denoiser"], *([f"{attention} attention"] if attention != "torch" else [])]


def write_chart(path: Path, records: Sequence[Record]) -> Path:
    """Write the newest records as stacked bars with the playback time beside them; returns the path."""
    shown = newest(records)
    longest = 1.1 * max(max(record["seconds_per_turn_p50"], record["playback_seconds"]) for record in shown)
    scale = (WIDTH - LEFT - 70) / longest
    # Bars begin behind the longest name.
    left = max(LEFT, 20 + LETTER * max(len(_label(record)) for record in shown))
    height = TOP + ROW * len(shown) + 30
    parts = []
    for number, (stage, colour) in enumerate(COLOURS.items()):
        x = left + 110 * number
        parts.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="43">{stage}</text>')
    playbacks = sorted({record["playback_seconds"] for record in shown})
    lines = [left + playback * scale for playback in playbacks]
    for row, record in enumerate(shown):
        parts += _bar(record, left, TOP + ROW * row, scale, lines)
    for playback, x in zip(playbacks, lines, strict=True):
        parts.append(
            f'<path d="M{x:.1f} {TOP - 4}V{height - 24}" stroke="#e15759" stroke-width="2" stroke-dasharray="5 4"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{height - 9}" text-anchor="middle" fill="#e15759">'
            f"a clip plays {playback:.2f} s</text>"
        )
    write_file(path, svg(WIDTH - LEFT + left, height, "Seconds per turn, median, by stage", parts).encode())
    return path


def ran_by(record: Record) -> str:
    """Who played the turns: a peer by its name, or this project, with the variant where several were timed."""
    variant = record.get("variant")
    return str(record["peer"] or (f"{OURS} {variant}" if variant else OURS))


def on_device(record: Record) -> str:
    """What `--device` was and was told, where it was not the CPU; records older than that option are of the CPU."""
    device = record.get("device", "cpu")
    return "" if device == "cpu" else ", ".join(["", device, *_told(record)])


def _label(record: Record) -> str:
    return f"{record['size']} · {record['plan']} · {ran_by(record)}{on_device(record)}"


def _bar(record: Record, left: float, y: float, scale: float, lines: Iterable[float]) -> list[str]:
    machine = str(record["machine"])[:46]
    parts = [
        f'<text x="12" y="{y + 12}">{escape(_label(record))}</text>',
        f'<text x="12" y="{y + 25}" font-size="10" fill="#777">{escape(machine)}</text>',
    ]
    x = float(left)
    for stage, colour in COLOURS.items():
        width = record["stages"][stage]["p50"] * scale
        parts.append(f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="20" fill="{colour}"/>')
        x += width
    total, x = f"{record['seconds_per_turn_p50']:.2f} s", x + SPACE
    for line in lines:
        if x - SPACE < line < x + LETTER * len(total):
            x = line + SPACE
    parts.append(f'<text x="{x:.1f}" y="{y + 18}">{total}</text>')
    return parts
