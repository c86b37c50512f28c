"""Writes measured tables into README.md, docs/QUALITY.md and the pages of benchmarks/.

The figures come from benchmarks/results (turns of a suite, and the newest run on a GPU) and the shipped bundle's
manifest.

`python benchmarks/tables.py` updates them in place; `--check` writes nothing and exits with 1 if one is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from animegamer_bench.records import FEWEST, TENTH, Record, read_records
from animegamer_bench.suites import ONE_GAME, SUITE_GAMES, TIMED
from animegamer_bench.table import place, rows, tail
from animegamer_rt.bundle.roles import VAE
from benchmarks.gpu.record import turn_records
from benchmarks.records import device_label, newest, processor

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
QUALITY_PAGE = ROOT / "docs" / "QUALITY.md"
BENCHMARKS = ROOT / "benchmarks" / "README.md"
WIRE = ROOT / "benchmarks" / "WIRE.md"
MANIFEST = ROOT / "engines" / "pocket" / "manifest.json"
BEGIN, END = "<!-- {}: begin (written by benchmarks/tables.py) -->", "<!-- {}: end -->"
RANDOM_WEIGHTS = "random weights"
FIRST_TURNS_SHARE, LATER_TURNS_SHARE = (
    "share of held-out first turns",
    "share of later turns where it is not said again",
)
QUALITY: tuple[tuple[str, tuple[str, ...], float | None], ...] = (
    (f"characters, {FIRST_TURNS_SHARE}", ("instruction", "characters"), 0.95),
    ("clothes", ("instruction", "outfits"), None),
    ("place", ("instruction", "place"), 0.95),
    ("day or night", ("instruction", "day_or_night"), 0.95),
    ("motion", ("instruction", "motion"), 0.85),
    ("all four state values, share of all turns", ("states", "all_four"), 0.98),
    ("motion within one level of the asked", ("motion", "within_one_level"), 0.85),
    ("motion at the asked level (ACC-F)", ("motion", "acc_f"), None),
    ("mean error of the level (MAE-F)", ("motion", "mae_f_levels"), None),
    ("motion of levels 1 to 5, px a frame", ("motion", "amount_px_per_frame_by_level"), None),
    ("level 5 over level 1", ("motion", "amount_ratio_5_to_1"), 2.5),
    (f"place kept, {LATER_TURNS_SHARE}", ("game", "place_kept"), 0.9),
    ("day or night kept", ("game", "day_or_night_kept"), None),
    ("characters kept", ("game", "characters_kept"), None),
    ("clothes kept", ("game", "outfit_kept"), None),
    ("position kept", ("game", "position_kept"), None),
    ("instruction followed, turns 1 to 5 of a game", ("game", "instruction_mean_by_turn"), None),
)
"""Rows of docs/QUALITY.md: the figure's name, its keys in a plan's quality, and its goal."""
VAE_QUALITY: tuple[tuple[str, tuple[str, ...], float | None], ...] = (
    ("vae, PSNR of held-out clips, dB", ("psnr_db",), 25.0),
    ("vae, the fastest level alone, dB", ("psnr_db_by_level", "5"), 23.0),
)

PEERS_COLUMNS = ("engine", "computes in", "s/turn, median", "p95", "n", "times as long", "frames differ by")
HEADLINE_COLUMNS = ("bundle, plan", "NFE", "s/turn", "n", "TTFF through a server, p95, s", "peak memory, GiB")
WIRE_COLUMNS = ("figure", "bundle, engines", "median", "p95", "n", "goal")
CROWD_COLUMNS = (
    "players",
    "bundle, engines",
    "turns/s",
    "state, s",
    "TTFF, s",
    "TTFF p95, s",
    "turns within a clip's time",
)
MISSED = " (missed)"


def headline_table(records: Sequence[Record], served: Sequence[Record] = ()) -> str:
    """README's one table: each bundle on the machine measured last, one row per plan, with the caveats in its title."""
    titles, lines = [], []
    for bundle in sorted({record["bundle"] for record in records}):
        shown = [record for record in newest(records) if record["bundle"] == bundle]
        here = [record for record in shown if processor(record) == processor(max(shown, key=_date))]
        random = any(record.get("origin") == RANDOM_WEIGHTS for record in here)
        caveat = f" with {RANDOM_WEIGHTS} (times, no pictures)" if random else ""
        titles.append(f"{bundle}{caveat} on {here[0]['machine']}")
        lines += [_line(_headline_row(record, served)) for record in here]
    title = f"**Median seconds per turn: {'; '.join(titles)}**"
    return "\n".join([title, "", _line(HEADLINE_COLUMNS), _line(["---"] * len(HEADLINE_COLUMNS)), *lines])


def _headline_row(record: Record, served: Sequence[Record]) -> list[str]:
    memory = record.get("memory_peak_mib")
    return [
        f"{record['bundle']}, **{record['plan']}**{device_label(record)}",
        str(record["network_rows"]),
        f"**{record['seconds_per_turn_p50']:.2f}**",
        str(record.get("n", "-")),
        "-" if record["peer"] else first_frame(record, served),
        "-" if memory is None else f"{memory / 1024:.1f}",
    ]


def first_frame(record: Record, served: Sequence[Record]) -> str:
    """The p95 time to first frame of a single player with a record's plan, in seconds, as text.

    From the newest `bench serve` record of the same processor and bundle; "-" if there is none.
    """
    same, found = ("machine", "instruction_sets", "fingerprint"), "-"
    for one in served:
        if one["size"] == record["bundle"] and all(one.get(name, "") == record.get(name) for name in same):
            mark = " (busy machine)" if _busy(one) else ""
            for entry in one["crowd"]:
                about = entry["sessions"], entry["engines"], entry.get("plans")
                if about == (1, record.get("device", "cpu"), [record["plan"]]):
                    found = tail(entry["first_frame_s"], "{:.2f}".format) + mark
    return found


def _p95(record: Record) -> str:
    if (value := record.get("seconds_per_turn_p95")) is not None:
        return f"{value:.2f}"
    largest = record.get("seconds_per_turn_max")
    return f"n < {FEWEST[95]}" if largest is None else f"max {largest:.2f}"


def wire_table(records: Sequence[Record]) -> str:
    """The newest `bench serve` record as Markdown: one table of single figures, one for many players at once."""
    if not records:
        return "Nothing was measured yet.\n"
    record = max(records, key=_date)
    workers = f", {record['workers']} workers" if record.get("workers", 1) > 1 else ""
    head = f"On {processor(record)}; bundle {record['size']}, plan {record['plan']}{workers}; "
    head += f"commit `{record['commit']}`, {record['date'][:10]}{_busy(record)}:"
    single = [
        [row.what, row.where, row.median, row.p95, row.samples, row.goal + MISSED * (row.reached is False)]
        for row in rows({**record, "crowd": []})
    ]
    crowd = [
        [
            str(entry["sessions"]),
            place(entry),
            f"{entry['turns_per_s']:.2f}",
            f"{entry['state_s']['p50']:.2f}",
            f"{entry['first_frame_s']['p50']:.2f}",
            tail(entry["first_frame_s"], "{:.2f}".format),
            f"{entry['goodput']:.0%}",
        ]
        for entry in record["crowd"]
    ]
    tables = [
        _line(cells)
        for columns, lines in ((WIRE_COLUMNS, single), (CROWD_COLUMNS, crowd))
        for cells in (columns, ["---"] * len(columns), *lines, [])
    ]
    return "\n".join([head, "", *("" if line == "|  |" else line for line in tables)])


def peers_table(records: Sequence[Record]) -> str:
    """The newest `benchmarks.peers` record of each processor, bundle and plan as Markdown, one table each."""
    newest_of_each = {(processor(record), record["bundle"], record["plan"]): record for record in records}
    parts = []
    for record in sorted(newest_of_each.values(), key=_date, reverse=True):
        head = f"On {processor(record)}; {record['bundle']}, plan {record['plan']}, {record['threads_of_each']} threads"
        parts += [f"{head} each; commit `{record['commit']}`, {record['date'][:10]}:", ""]
        parts += [_line(PEERS_COLUMNS), _line(["---"] * len(PEERS_COLUMNS))]
        for one in record["engines"]:
            cells = [one["name"], one["precision"], f"**{one['seconds_per_turn_p50']:.2f}**", _p95(one), str(one["n"])]
            parts.append(_line([*cells, f"{one['ratio']:.2f}", f"{one['frame_difference']} of 255"]))
        shaky = sorted({reason for one in record["engines"] for reason in one["unsteady"]})
        parts += ["", *([f"**Unsteady**: {'; '.join(shaky)}.", ""] if shaky else [])]
    return "\n".join(parts) or "Nothing was measured yet.\n"


def _busy(record: Record) -> str:
    """CPU use of other programs before and after a run of `bench serve`, if at least a tenth of the processor."""
    watched = record.get("activity", {})
    shares = {when: found["others_share"] or 0.0 for when, found in watched.items()}
    if max(shares.values(), default=0.0) < TENTH:
        return ""
    usage = ", ".join(f"{share:.0%} {when}" for when, share in shares.items())
    return f", on a **busy** machine (other programs took {usage} of the processor's time)"


def quality_table(manifest: Mapping[str, Any]) -> str:
    """A bundle's measured quality as Markdown: one row per figure, one column per plan, and the goals."""
    quality: Mapping[str, Any] = manifest["quality"]
    plans = [name for name in quality if name != "vae"]
    if not plans:
        return "Nothing was measured yet.\n"
    lines = [_line(["what", *plans, "goal"]), _line(["---"] * (len(plans) + 2))]
    own_vae = [VAE in manifest["plans"][plan]["parts"] for plan in plans]
    for what, keys, goal in VAE_QUALITY:
        value = _measured(quality["vae"], keys, goal)
        lines.append(_line([what, *("-" if own else value for own in own_vae), _goal(goal)]))
    for what, keys, goal in QUALITY:
        lines.append(_line([what, *[_measured(quality[plan], keys, goal) for plan in plans], _goal(goal)]))
    judged = quality[plans[0]]
    turns, games = judged["held_out_single_turns"], f"{judged['games']} games of {judged['turns_per_game']}"
    return "\n".join([*lines, "", f"Counted on {turns} first turns and {games}, the same for all plans."])


def timed_box() -> str:
    """What is timed, as a block quote."""
    texts = (f"**What is timed.** {TIMED}", f"**Suite.** {SUITE_GAMES}", f"**Without a suite.** {ONE_GAME}")
    return "\n>\n".join(f"> {text}" for text in texts)


def _measured(group: Mapping[str, Any], keys: Sequence[str], goal: float | None) -> str:
    value: Any = group
    for key in keys:
        value = value[key]
    if isinstance(value, Mapping):
        value = list(value.values())
    shown = " / ".join(_number(item) for item in (value if isinstance(value, list) else [value]))
    return shown + MISSED * (goal is not None and value < goal)


def _goal(goal: float | None) -> str:
    return "" if goal is None else f"at least {_number(goal)}"


def replace_section(text: str, mark: str, content: str) -> str:
    """The text of a file with new content between its two marks."""
    begin, end = BEGIN.format(mark), END.format(mark)
    assert begin in text and end in text, f"the marks {begin} and {end} are missing"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{rest.partition(end)[2]}"


def main(arguments: Sequence[str]) -> int:
    """Renew all files; with --check, 1 if one is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table is out of date")
    check = parser.parse_args(arguments).check
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    played = [record for record in read_records(RESULTS, "gpu") if record["turns"]]  # some runs had failures alone
    wire, on_gpu = read_records(RESULTS, "wire"), turn_records(played[-1])
    turns = [*(record for record in read_records(RESULTS) if record.get("suite") is not None), *on_gpu]
    contents = {
        README: {"measured": headline_table(turns, wire)},
        QUALITY_PAGE: {"quality": quality_table(manifest)},
        WIRE: {"wire": wire_table(wire)},
        BENCHMARKS: {
            "timed": timed_box(),
            "peers": peers_table(read_records(RESULTS, "peers")),
        },
    }
    stale = False
    for path, tables in contents.items():
        before = wanted = path.read_text(encoding="utf-8")
        for mark, content in tables.items():
            wanted = replace_section(wanted, mark, content)
        stale = stale or wanted != before
        if not check:
            path.write_text(wanted, encoding="utf-8")
    if check:
        return int(stale)
    print(f"README: {len(newest(turns))} timing records; WIRE.md: {len(wire)}")
    return 0


def _date(record: Record) -> str:
    return str(record["date"])


def _number(value: float | None) -> str:
    return "nothing to count" if value is None else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
