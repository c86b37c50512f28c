"""`animegamer-rt bench verify FILE`: whether a record is whole, unchanged and plausible.

Knows what the figures of a record must agree in; nothing of how they were measured. `record_form` knows its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.untrusted import plain, short

from .figures import figures_of
from .record_form import GATE, SAMPLE_COLUMNS, STAGES, misformed
from .records import SEAL, TURN_FORMAT, UPDATE, of_newer_version, read_json, seal
from .report import SAMPLES, of_the_gpu
from .steadiness import unsteady
from .suite import HASHES, load_suite

ROUNDING = 1e-3
"""Figures are rounded to four digits."""
A_DAY = timedelta(days=1)
"""Clocks of machines differ by less."""


def verify(paths: Sequence[Path]) -> int:
    """Print for each file whether it is sound, or what is wrong; 1 if one is not."""
    worst = 0
    for path in paths:
        wrong = list(problems(record := read_json(path)))
        print(plain(f"{path}: {'sound' if not wrong else 'not checked' if _uncheckable(record) else 'not sound'}"))
        for line in wrong:
            print(plain(f"  {line}"))
        worst = max(worst, int(bool(wrong)))
    return worst


def problems(record: object) -> Iterator[str]:
    """What is wrong with a record, a line each; nothing for a sound one."""
    if not isinstance(record, dict):
        yield "not a record: it is no JSON object"
        return
    if (kind := _other_kind(record)) is not None:
        yield f"not a record of turns; found kind {kind}: only what `animegamer-rt bench run` writes can be checked"
        return
    if of_the_gpu(record):
        yield "of the GPU benchmark, whose records have no hash: only those of `animegamer-rt bench run` can be checked"
        return
    if record.get("format") != TURN_FORMAT:
        do = UPDATE if of_newer_version(record) else "measure again with this version"
        yield f"not a record of turns of format {TURN_FORMAT}; found format {record.get('format')}: {do}"
        return
    wrong = misformed(record)
    yield from wrong
    if record.get(SEAL) != seal(record)[SEAL]:
        yield f"{SEAL}: not the hash of the other fields: the record was changed after it was written"
    if not wrong:
        try:
            yield from _implausible(record)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            yield f"a field has not the form that bench gives it: {type(error).__name__} {error}"


def _uncheckable(record: object) -> bool:
    return _other_kind(record) is not None or (isinstance(record, dict) and of_the_gpu(record))


def _other_kind(record: object) -> object | None:
    """The kind of a record of something else than turns; None for one of turns, and for what is no record."""
    kind = record.get("kind", "turn") if isinstance(record, dict) else "turn"
    return None if kind == "turn" else kind


def _implausible(record: Mapping[str, Any]) -> Iterator[str]:
    columns = record[SAMPLES]
    lengths = {name: len(columns[name]) for name in SAMPLE_COLUMNS}
    if set(lengths.values()) != {record["n"]} or not record["n"]:
        yield f"n: found {record['n']}, but {SAMPLES} has {lengths}"
        return
    yield from _wrong_date(record["date"])
    if len(record["shape"]) != 3 or min(record["shape"]) < 1:
        yield f"shape: found {record['shape']}, expected frames, height and width"
        return
    for name, expected in figures_of(columns, record["shape"][0], record["playback_seconds"]).items():
        yield from _unlike(record[name], expected, name)
    seconds, starts = (np.asarray(columns[name], np.float64) for name in ("seconds", "at"))
    parts = np.sum([columns[stage] for stage in STAGES], axis=0)
    if np.any(seconds <= 0) or np.any(parts > seconds + ROUNDING):
        yield f"{SAMPLES}: a turn is shorter than its stages together"
    ends = starts + seconds
    if np.any(starts[1:] < ends[:-1] - ROUNDING):
        yield f"{SAMPLES}: a turn begins before the one before it ends"
    if record["sustained_seconds_per_turn"] < (ends[-1] - starts[0]) / record["n"] - ROUNDING:
        yield f"sustained_seconds_per_turn: found {record['sustained_seconds_per_turn']}, less than the turns take"
    yield from _hidden_doubts(record, seconds.tolist())
    if record["suite"] is not None:
        yield from _not_the_suite(record, float(ends[-1]))


def _wrong_date(date: str) -> Iterator[str]:
    try:
        then = datetime.fromisoformat(date)
        ahead = then - datetime.now(timezone.utc)
    except (ValueError, TypeError):  # no date, or one without a time zone
        yield f"date: found {short(date)}, expected one as in 2026-11-25T13:32:57+00:00"
        return
    if ahead > A_DAY:
        yield f"date: found {date}, which is in the future: was the clock wrong there, or is it here?"


def _unlike(told: Any, expected: Any, name: str) -> Iterator[str]:
    """Where a figure, or one inside it, is not what the turns give."""
    if isinstance(told, Mapping) and isinstance(expected, Mapping):
        for inner, value in expected.items():
            yield from _unlike(told[inner], value, f"{name}.{inner}")
    elif expected is None or not isinstance(told, (int, float)) or isinstance(expected, Mapping):
        if told != expected:
            yield f"{name}: found {told}, but the turns give {expected}"
    elif not _near(told, expected):
        yield f"{name}: found {told}, but the turns give {expected:.4f}"


def _hidden_doubts(record: Mapping[str, Any], seconds: list[float]) -> Iterator[str]:
    """Reasons to run again that the record's own figures give and it does not, and a gate that should not have passed.

    The reasons' words may be those of another version, so only whether there are any is compared.
    """
    during = record["activity"]["during"]
    reasons = unsteady(seconds, during, record["complete"])
    if reasons and not record["unsteady"]:
        yield f"unsteady: found no reason, but {reasons[0]}"
    gate = record["quality_gate"]
    if gate["passed"] is not None and (missing := sorted(GATE.keys() - gate.keys())):
        yield f"quality_gate: missing {', '.join(missing)}"
    elif gate["passed"] and (gate["ssim_needed"] or 0) > (gate["ssim_against_exact"] or 0):
        yield f"quality_gate: passed with SSIM {gate['ssim_against_exact']}, but {gate['ssim_needed']} is needed"


def _not_the_suite(record: Mapping[str, Any], length: float) -> Iterator[str]:
    if record["suite_sha256"] != HASHES.get(record["suite"]):
        yield f"suite_sha256: found {record['suite_sha256']}, which is not that of suite {record['suite']}"
        return
    suite = load_suite(record["suite"])
    if record["complete"] and (record["n"] < suite.turns or length < suite.seconds):
        needed = f"{suite.turns} turns and {suite.seconds:.0f} s"
        yield f"suite {suite.number}: found {record['n']} turns in {length:.0f} s; it takes {needed}"


def _near(found: float, expected: float) -> bool:
    return abs(found - expected) <= ROUNDING * max(abs(expected), 1.0)
