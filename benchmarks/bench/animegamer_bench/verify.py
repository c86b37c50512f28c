"""`animegamer-rt bench verify FILE`: whether a record's figures are those that its own turns give.

Knows what the figures of a record must agree in; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.untrusted import plain, short

from .presets import HASHES, load_suite
from .records import (
    SAMPLE_COLUMNS,
    SAMPLES,
    STAGES,
    TURN_FORMAT,
    UPDATE,
    figures_of,
    of_newer_version,
    of_the_gpu,
    read_json,
    unsteady,
)

ROUNDING = 1e-3
"""Figures are rounded to four digits."""
A_DAY = timedelta(days=1)
"""Clocks of machines differ by less."""


def verify(paths: Sequence[Path]) -> int:
    """Print for each file whether it is sound, or what is wrong; 1 if one is not."""
    worst = 0
    for path in paths:
        record = read_json(path)
        unchecked = _why_unchecked(record)
        wrong = [unchecked] if unchecked else list(problems(record))
        print(plain(f"{path}: {'not checked' if unchecked else 'not sound' if wrong else 'sound'}"))
        for line in wrong:
            print(plain(f"  {line}"))
        worst = max(worst, int(bool(wrong)))
    return worst


def _why_unchecked(record: object) -> str | None:
    """Why a record of something else cannot be checked; None for one that can."""
    if not isinstance(record, dict):
        return None
    if (kind := record.get("kind", "turn")) != "turn":
        return f"not a record of turns; found kind {kind}: only what `animegamer-rt bench run` writes can be checked"
    return (
        "of the GPU benchmark: only what `animegamer-rt bench run` writes can be checked"
        if of_the_gpu(record)
        else None
    )


def problems(record: object) -> Iterator[str]:
    """What is wrong with a record, a line each; nothing for a sound one."""
    if not isinstance(record, dict):
        yield "not a record: it is no JSON object"
        return
    if record.get("format") != TURN_FORMAT:
        do = UPDATE if of_newer_version(record) else "measure again with this version"
        yield f"not a record of turns of format {TURN_FORMAT}; found format {record.get('format')}: {do}"
        return
    try:
        yield from _implausible(record)
    except KeyError as error:
        yield f"{error.args[0]}: missing"
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        yield f"a field has not the form that bench gives it: {type(error).__name__} {error}"


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
    elif not abs(told - expected) <= ROUNDING * max(abs(expected), 1.0):
        yield f"{name}: found {told}, but the turns give {expected:.4f}"


def _hidden_doubts(record: Mapping[str, Any], seconds: list[float]) -> Iterator[str]:
    """Reasons to run again that the record's own figures give and it does not, and a gate that should not have passed.

    The reasons' words may be those of another version, so only whether there are any is compared.
    """
    reasons = unsteady(seconds, record["activity"]["during"], record["complete"])
    if reasons and not record["unsteady"]:
        yield f"unsteady: found no reason, but {reasons[0]}"
    gate = record["quality_gate"]
    if gate["passed"] and (gate["ssim_needed"] or 0) > (gate["ssim_against_exact"] or 0):
        yield f"quality_gate: passed with SSIM {gate['ssim_against_exact']}, but {gate['ssim_needed']} is needed"


def _not_the_suite(record: Mapping[str, Any], length: float) -> Iterator[str]:
    if record["suite_sha256"] != HASHES.get(record["suite"]):
        yield f"suite_sha256: found {record['suite_sha256']}, which is not that of suite {record['suite']}"
        return
    suite = load_suite(record["suite"])
    if record["complete"] and (record["n"] < suite.turns or length < suite.seconds):
        needed = f"{suite.turns} turns and {suite.seconds:.0f} s"
        yield f"suite {suite.number}: found {record['n']} turns in {length:.0f} s; it takes {needed}"
