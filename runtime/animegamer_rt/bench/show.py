"""`animegamer-rt bench show RECORD ...`: records as a table, for a spreadsheet, a database, a text or a bibliography.

A row a record, with the columns of COLUMNS or, in Markdown, some of them; `quote` and `bibtex` are to cite one.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from animegamer_rt.errors import ConfigError
from animegamer_rt.untrusted import plain

from .compare import read_turns
from .records import Record
from .report import engine, quote

Value = str | int | float | bool | None
Row = dict[str, Value]
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
TABLE = "animegamer_turns"


def show(paths: Sequence[Path], wanted: str) -> int:
    """Print records in one of FORMATS; returns 0. Raises ConfigError for a file that is none."""
    print(WRITERS[wanted]([_read(path) for path in paths]), end="")
    return 0


def _read(path: Path) -> Record:
    record = read_turns(path)
    texts = [name for name in ("bundle", "plan", "machine", "commit", "date") if not isinstance(record.get(name), str)]
    if texts or not isinstance(record.get("n"), int):
        missing = ", ".join(texts or ["n"])
        raise ConfigError("not a record of turns", where=path, found=f"no {missing}", do="give one that bench wrote")
    try:
        row(record)
        quote(record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        do = f"see which: animegamer-rt bench verify {shlex.quote(str(path))}"
        raise ConfigError("not a record of turns", where=path, found="a field of another form", do=do) from error
    return record


def row(record: Record) -> Row:
    """A record's COLUMNS, in order. precision: the denoiser's. steady, gate_passed: null where it was not judged."""
    told: dict[str, Any] = {
        **record,
        "instruction_sets": " ".join(record.get("instruction_sets") or []) or None,
        "precision": (record.get("precision") or {}).get("denoiser"),
        "steady": not record["unsteady"] if "unsteady" in record else None,
        "gate_passed": (record.get("quality_gate") or {}).get("passed"),
    }
    return {name: _value(told.get(name)) for name in COLUMNS}


def _value(found: object) -> Value:
    return found if found is None or isinstance(found, (int, float)) else plain(str(found))


def _markdown(records: Sequence[Record]) -> str:
    rows = [row(record) for record in records]
    names = [name for name in IN_MARKDOWN if any(one[name] is not None for one in rows)]
    cells = [names, ["---"] * len(names), *([_cell(one[name]) for name in names] for one in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("|", "\\|")


def _csv(records: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row(record) for record in records)
    return text.getvalue()


def _json(records: Sequence[Record]) -> str:
    return json.dumps([row(record) for record in records], indent=1) + "\n"


def _json_lines(records: Sequence[Record]) -> str:
    return "".join(json.dumps(row(record)) + "\n" for record in records)


def _sql(records: Sequence[Record]) -> str:
    """Statements that SQLite and PostgreSQL read. Numbers are double precision, so that a later record fits."""
    return "".join(_statements([row(record) for record in records]))


def _statements(rows: Sequence[Row]) -> Iterator[str]:
    numbers = {"n", "suite", "fps", *(name for name in COLUMNS if re.search("seconds|_mib|_j_", name))}
    types = {name: "DOUBLE PRECISION" if name in numbers else "TEXT" for name in COLUMNS}
    types |= dict.fromkeys(("steady", "gate_passed"), "BOOLEAN")
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    yield f"CREATE TABLE IF NOT EXISTS {TABLE} ({columns});\n"
    for one in rows:
        yield f"INSERT INTO {TABLE} VALUES ({', '.join(map(_literal, one.values()))});\n"


def _literal(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, (int, float)) else f"'{value.replace(chr(39), chr(39) * 2)}'"


def _quotes(records: Sequence[Record]) -> str:
    return "".join(plain(quote(record)) + "\n" for record in records)


def _bibtex(records: Sequence[Record]) -> str:
    return "\n".join(map(_entry, records))


def _entry(record: Record) -> str:
    date = plain(str(record["date"]))
    key = re.sub(r"[^0-9a-zA-Z-]", "", f"animegamer-rt-{record['bundle']}-{record['plan']}-{date[:19]}")
    what, note = f"{engine(record)}, {record['plan']}", _escaped(plain(quote(record)))
    if sealed := record.get("record_sha256"):
        note += f"; record SHA-256 {_escaped(plain(str(sealed)))}"
    return (
        f"@misc{{{key},\n"
        "  author = {{The animegamer-rt maintainers}},\n"
        f"  title = {{Seconds per turn of {_escaped(plain(what))} plan}},\n"
        f"  year = {{{date[:4]}}},\n"
        f"  note = {{{note}}}\n"
        "}\n"
    )


def _escaped(text: str) -> str:
    r"""Text for BibTeX: `a_b` as `a\_b`; braces and backslashes, which would end the field, are left out."""
    return re.sub(r"([&%$#_])", r"\\\1", re.sub(r"[{}\\~^]", "", text))


WRITERS: Mapping[str, Callable[[Sequence[Record]], str]] = MappingProxyType(
    {
        "md": _markdown,
        "csv": _csv,
        "json": _json,
        "jsonl": _json_lines,
        "sql": _sql,
        "quote": _quotes,
        "bibtex": _bibtex,
    }
)
"""Name in FORMATS -> what writes it."""
