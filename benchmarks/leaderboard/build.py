"""Makes a page of the records of suites, a table for each cohort: the same suite, bundle and plan.

    python benchmarks/leaderboard/build.py --out build/leaderboard

A record that `bench verify` does not find sound ends it with 1 and no page.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from animegamer_rt.bench.presets import SUITE_GAMES, TIMED
from animegamer_rt.bench.records import PACK_SUFFIX, Record, read_json
from animegamer_rt.bench.verify import problems
from benchmarks.records import fast_sets

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
STYLE = (HERE / "page.css").read_text(encoding="utf-8")
TURNS = 1000
COLUMNS = ("machine", "precision", "s/turn, median", "p95", "n", "J/turn", f"cost of {TURNS} turns", "commit", "date")


@dataclass(frozen=True, slots=True)
class Cost:
    """Money for 1000 turns, and whether the energy in it was measured."""

    money: float
    energy_measured: bool


def records(folders: Sequence[Path]) -> list[Record]:
    """The records of suites in folders, fastest first in each cohort. Raises ValueError that names each unsound one."""
    found, unsound = [], []
    for path in sorted(path for folder in folders for path in folder.iterdir()):
        if path.suffix not in (PACK_SUFFIX, ".json"):
            continue
        record = read_json(path)
        packed = path.suffix == PACK_SUFFIX
        if not packed and not (isinstance(record, dict) and record.get("suite")):
            continue
        wrong = list(problems(record))
        if not wrong and not record["suite"]:
            wrong = ["it is of no suite; run: animegamer-rt bench run --suite 1"]
        unsound += [f"{path}: {line}" for line in wrong]
        found.append(record)
    if unsound:
        raise ValueError("\n".join(unsound))
    return sorted(found, key=lambda record: (_cohort(record), not sound_figure(record), record["seconds_per_turn_p50"]))


def _cohort(record: Record) -> tuple[int, str, str, str]:
    return record["suite"], record["bundle"], str(record["fingerprint"]), record["plan"]


def sound_figure(record: Record) -> bool:
    """Whether the run was steady and drew what its plan draws."""
    return not record["unsteady"] and record["quality_gate"].get("passed") is True


def cost(record: Record, prices: Mapping[str, Any]) -> Cost | None:
    """By the price list; None for a machine that is not in it."""
    machine = next((one for one in prices["machines"] if one["match"] in record["machine"]), None)
    if machine is None:
        return None
    hours = TURNS * record["sustained_seconds_per_turn"] / 3600
    joules = record["energy_j_per_turn"]
    kwh = hours * machine["watts"] / 1000 if joules is None else TURNS * joules / 3.6e6
    return Cost(hours * machine["per_hour"] + kwh * prices["electricity_per_kwh"], joules is not None)


def page(chosen: Sequence[Record], prices: Mapping[str, Any]) -> str:
    """The whole page as HTML, without a script and without a request to anywhere."""
    tables = [_table(list(group), prices) for _, group in groupby(chosen, _cohort)]
    body = "\n".join(tables) or "<p>No record of a suite yet.</p>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>animegamer-rt: seconds a turn</title><style>{STYLE}</style></head><body>
<h1>Seconds a turn</h1>
<p class="lead">A turn of AnimeGamer: an instruction in, the next game state and a clip of 17 frames out. Shorter bars
are better. Only records of one table can be compared: the same suite, bundle and plan.</p>
{body}
<section class="notes"><h2>What is timed</h2><p>{html.escape(TIMED)}</p><p>{html.escape(SUITE_GAMES)}</p>
<h2>Cost</h2><p>{html.escape(prices["note"])}</p>
<p>* the energy in it is not measured.</p></section>
</body></html>
"""


def _table(rows: Sequence[Record], prices: Mapping[str, Any]) -> str:
    first = rows[0]
    slowest = max(row["seconds_per_turn_p50"] for row in rows)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    title = f"{first['bundle']}, plan {first['plan']}"
    about = f"suite {first['suite']}; bundle {first['fingerprint'] or 'of random weights'}"
    return (
        f"<section><h2>{html.escape(title)}</h2><p class='about'>{html.escape(about)}</p>"
        f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>"
        f"{''.join(_row(row, slowest, prices) for row in rows)}</tbody></table></div></section>"
    )


def _row(record: Record, slowest: float, prices: Mapping[str, Any]) -> str:
    seconds = record["seconds_per_turn_p50"]
    bar = f"<span class='bar' style='width:{100 * seconds / slowest:.1f}%'></span><b>{seconds:.3f}</b>"
    joules, priced = record["energy_j_per_turn"], cost(record, prices)
    money = "" if priced is None else f"{priced.money:.3f} {prices['currency']}{'' if priced.energy_measured else ' *'}"
    machine = html.escape(record["machine"]) + "".join(f"<em>{html.escape(one)}</em>" for one in _marks(record))
    p95 = record["seconds_per_turn_p95"]
    cells = [
        machine,
        html.escape(str(record["precision"].get("denoiser", ""))),
        f"<div class='figure'>{bar}</div>",
        "" if p95 is None else f"{p95:.3f}",
        str(record["n"]),
        "not measured" if joules is None else f"{joules:.1f}",
        money,
        html.escape(record["commit"]),
        html.escape(record["date"][:10]),
    ]
    kind = "" if sound_figure(record) else " class='shaky'"
    return f"<tr{kind}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _marks(record: Record) -> Iterator[str]:
    if sets := fast_sets(record):
        yield " ".join(sets)
    yield from (f"unsteady: {reason}" for reason in record["unsteady"])
    if record["quality_gate"].get("passed") is not True:
        yield "quality gate not passed"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[HERE / "packs", RESULTS], help="of records and packs")
    parser.add_argument("--out", type=Path, default=Path("build/leaderboard"))
    options = parser.parse_args(arguments)
    try:
        chosen = records(options.folders)
    except ValueError as error:
        print(f"error: records that are not sound:\n{error}", file=sys.stderr)
        return 1
    prices = json.loads((HERE / "prices.json").read_text(encoding="utf-8"))
    options.out.mkdir(parents=True, exist_ok=True)
    written = options.out / "index.html"
    written.write_text(page(chosen, prices), encoding="utf-8")
    print(f"{written}: {len(chosen)} records")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
