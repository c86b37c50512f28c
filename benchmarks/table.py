"""The tables of README, WIRE.md and PREDICTED.md, from benchmarks/results, the shipped bundle and predict.py.

`python benchmarks/table.py` renews them in place; `--check` only says whether they are up to date. Nothing in them is
typed by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import predict  # type: ignore[import-not-found]

from animegamer_rt import chart_wire
from animegamer_rt.chart import Record, newest, on_device, read_records
from animegamer_rt.schedule import DenoisePlan

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
WIRE = ROOT / "benchmarks" / "WIRE.md"
PREDICTED = ROOT / "benchmarks" / "PREDICTED.md"
MANIFEST = ROOT / "engines" / "pocket" / "manifest.json"
BEGIN, END = "<!-- {}: begin (written by benchmarks/table.py) -->", "<!-- {}: end -->"
COLUMNS = (
    "bundle, plan",
    "branches",
    "s/turn p50",
    "p95",
    "predictor",
    "denoiser",
    "vae",
    "peak memory",
    "first prompt",
    "fidelity against exact",
    "commit, date",
)

WIRE_COLUMNS = ("figure", "bundle, engines", "median", "p95", "n", "goal")
WIRE_PLOT = "![the newest of them as bars](results/wire.svg)"
MISSED = " (missed)"


def table(records: Sequence[Record]) -> str:
    """The newest record of each machine and plan as Markdown, a table a machine."""
    shown = newest(records)
    if not shown:
        return "Nothing was measured yet.\n"
    lines = []
    for machine in dict.fromkeys(record["machine"] for record in shown):
        rows = [row(record) for record in shown if record["machine"] == machine]
        lines += [f"On {machine}:", "", _line(COLUMNS), _line(["---"] * len(COLUMNS)), *map(_line, rows), ""]
    return "\n".join(lines)


def row(record: Record) -> list[str]:
    """The cells of one record."""
    stages = [f"{record['stages'][stage]['p50']:.2f}" for stage in ("predictor", "denoiser", "vae")]
    memory = record["memory_peak_mib"]
    return [
        f"{record['size']}, **{record['plan']}**{on_device(record)}",
        str(record["branches"]),
        f"**{record['seconds_per_turn_p50']:.2f}**",
        f"{record['seconds_per_turn_p95']:.2f}",
        *stages,
        f"{memory:.0f} MiB" if memory is not None else "not measured",
        f"{record['first_prompt_seconds']:.1f} s",
        figures(record["fidelity"]) or "not measured",
        f"`{record['commit']}`, {record['date'][:10]}",
    ]


def wire_table(records: Sequence[Record]) -> str:
    """The newest `bench wire` record of each machine and bundle as Markdown, a table each."""
    parts = []
    for record in {(record["machine"], record["size"]): record for record in records}.values():
        head = f"On {record['machine']}; bundle {record['size']}, plan {record['plan']}; "
        head += f"commit `{record['commit']}`, {record['date'][:10]}:"
        shown = [
            [row.what, row.where, row.median, row.p95, row.samples, row.goal + MISSED * (row.reached is False)]
            for row in chart_wire.rows(record)
        ]
        parts += [head, "", _line(WIRE_COLUMNS), _line(["---"] * len(WIRE_COLUMNS)), *map(_line, shown), ""]
    return "\n".join([*parts, WIRE_PLOT]) if parts else "Nothing was measured yet.\n"


def quality_table(quality: Mapping[str, object]) -> str:
    """A bundle's measured quality as Markdown, a row a group of figures."""
    if not quality:
        return "Nothing was measured yet.\n"
    return "\n".join([_line(["what", "measured"]), _line(["---"] * 2), *map(_line, quality_rows(quality))])


def quality_rows(quality: Mapping[str, object], above: str = "", deeper: int = 1) -> list[list[str]]:
    """A row for the figures of each group, and of the groups inside it; what stands alone comes first."""
    alone = {name: value for name, value in quality.items() if not isinstance(value, Mapping)}
    rows = [[above or "measured on", figures(alone)]] if alone else []
    for name, group in quality.items():
        if isinstance(group, Mapping):
            label = f"{above}: {name}" if above else name
            rows += quality_rows(group, label, deeper - 1) if deeper else [[label.replace("_", " "), figures(group)]]
    return rows


def figures(group: Mapping[str, object]) -> str:
    """Names and numbers in one line; groups inside are named before their own."""
    parts = []
    for name, value in group.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            parts.append(f"{label}: {figures(value)}")
        elif isinstance(value, (list, tuple)):
            parts.append(f"{label} {' / '.join(_number(item) for item in value)}")
        elif value is not None:
            parts.append(f"{label} {_number(value)}")
    return ", ".join(parts)


def renewed(text: str, mark: str, content: str) -> str:
    """A file's text with the content between its two marks of that name."""
    begin, end = BEGIN.format(mark), END.format(mark)
    assert begin in text and end in text, f"the marks {begin} and {end} are missing"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{rest.partition(end)[2]}"


def main(arguments: Sequence[str]) -> int:
    """Renew all files, or with --check say (1) that one is out of date."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    rows = {name: DenoisePlan.from_dict(entry["plan"]).network_rows for name, entry in manifest["plans"].items()}
    turns, wire = read_records(RESULTS), read_records(RESULTS, "wire")
    contents = {
        README: {"measured": table(turns), "quality": quality_table(manifest["quality"])},
        WIRE: {"wire": wire_table(wire)},
        PREDICTED: {"predicted": predict.table(rows)},
    }
    stale = False
    for path, tables in contents.items():
        before = wanted = path.read_text(encoding="utf-8")
        for mark, content in tables.items():
            wanted = renewed(wanted, mark, content)
        stale = stale or wanted != before
        if "--check" not in arguments:
            path.write_text(wanted, encoding="utf-8")
    if "--check" in arguments:
        return int(stale)
    print(f"README: {len(newest(turns))} measurements of time; WIRE.md: {len(wire)}")
    return 0


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
