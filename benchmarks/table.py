"""README's table of measurements, written from benchmarks/results. `python benchmarks/table.py` renews it in place.

Nothing in the table is typed by hand; `--check` only says whether README is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from animegamer_rt.chart import Record, newest, read_records

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- measured: begin (written by benchmarks/table.py) -->", "<!-- measured: end -->"
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
        f"{record['size']}, **{record['plan']}**",
        str(record["branches"]),
        f"**{record['seconds_per_turn_p50']:.2f}**",
        f"{record['seconds_per_turn_p95']:.2f}",
        *stages,
        f"{memory:.0f} MiB" if memory is not None else "not measured",
        f"{record['first_prompt_seconds']:.1f} s",
        _fidelity(record["fidelity"]),
        f"`{record['commit']}`, {record['date'][:10]}",
    ]


def renewed(readme: str, content: str) -> str:
    """README with the content between the two marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, f"README.md lacks the marks {BEGIN} and {END}"
    return f"{before}{BEGIN}\n\n{content.strip()}\n\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Renew README, or with --check say (1) that it is out of date."""
    readme = README.read_text(encoding="utf-8")
    wanted = renewed(readme, table(read_records(RESULTS)))
    if "--check" in arguments:
        return int(readme != wanted)
    README.write_text(wanted, encoding="utf-8")
    print(f"README's table: {len(newest(read_records(RESULTS)))} measurements")
    return 0


def _fidelity(figures: object) -> str:
    if not isinstance(figures, dict) or not figures:
        return "not measured"
    known = [(name, value) for name, value in figures.items() if isinstance(value, (int, float))]
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in known) or "not measured"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
