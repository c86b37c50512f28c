"""`animegamer-rt bench verify FILE`: whether a record is whole, unchanged and plausible.

Knows what the figures of a record must agree in; nothing of how they were measured. `record_form` knows its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.percentiles import FEWEST
from animegamer_rt.untrusted import plain

from .record_form import misformed
from .records import SEAL, TURN_FORMAT, UPDATE, of_newer_version, read_json, seal
from .report import SAMPLES
from .suite import HASHES, load_suite

ROUNDING = 1e-3
"""Figures are rounded to four digits."""


def verify(paths: Sequence[Path]) -> int:
    """Print for each file whether it is sound, or what is wrong; 1 if one is not. Raises ConfigError without a file."""
    if not paths:
        raise ConfigError("verify needs records", found="none", do="give files that bench wrote")
    worst = 0
    for path in paths:
        wrong = list(problems(read_json(path)))
        print(plain(f"{path}: {'sound' if not wrong else 'not sound'}"))
        for line in wrong:
            print(plain(f"  {line}"))
        worst = max(worst, int(bool(wrong)))
    return worst


def problems(record: object) -> Iterator[str]:
    """What is wrong with a record, a line each; nothing for a sound one."""
    if not isinstance(record, dict):
        yield "not a record: it is no JSON object"
        return
    if record.get("format") != TURN_FORMAT or record.get("kind", "turn") != "turn":
        told = f"format {record.get('format')}, kind {record.get('kind', 'turn')}"
        do = UPDATE if of_newer_version(record) else "measure again with this version"
        yield f"not a record of turns of format {TURN_FORMAT}; found {told}: {do}"
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


def _implausible(record: Mapping[str, Any]) -> Iterator[str]:
    columns = record[SAMPLES]
    seconds = np.asarray(columns["seconds"], np.float64)
    lengths = {name: len(column) for name, column in columns.items()}
    if set(lengths.values()) != {record["n"]}:
        yield f"n: found {record['n']}, but {SAMPLES} has {lengths}"
        return
    for p, fewest in FEWEST.items():
        told = record[f"seconds_per_turn_p{p}"]
        if (told is not None) != (len(seconds) >= fewest):
            yield f"seconds_per_turn_p{p}: found {told} with n = {len(seconds)}; it takes {fewest} turns"
        elif told is not None and not _near(told, float(np.percentile(seconds, p))):
            yield f"seconds_per_turn_p{p}: found {told}, but the turns give {np.percentile(seconds, p):.4f}"
    for stage, told in record["stages"].items():
        if not _near(told["p50"], float(np.median(columns[stage]))):
            yield f"stages.{stage}.p50: found {told['p50']}, but the turns give {np.median(columns[stage]):.4f}"
    parts = np.sum([columns[stage] for stage in record["stages"]], axis=0)
    if np.any(seconds <= 0) or np.any(parts > seconds + ROUNDING):
        yield f"{SAMPLES}: a turn is shorter than its stages together"
    ends = np.asarray(columns["at"], np.float64) + seconds
    if np.any(np.asarray(columns["at"][1:]) < ends[:-1] - ROUNDING):
        yield f"{SAMPLES}: a turn begins before the one before it ends"
    if not _near(record["fps"] * record["seconds_per_turn_p50"], record["shape"][0], 0.01):
        yield "fps: not the frames of a clip over the seconds of a turn"
    if record["suite"] is not None:
        yield from _not_the_suite(record, float(ends[-1]))


def _not_the_suite(record: Mapping[str, Any], length: float) -> Iterator[str]:
    if record["suite_sha256"] != HASHES.get(record["suite"]):
        yield f"suite_sha256: found {record['suite_sha256']}, which is not that of suite {record['suite']}"
        return
    suite = load_suite(record["suite"])
    if record["complete"] and (record["n"] < suite.turns or length < suite.seconds):
        needed = f"{suite.turns} turns and {suite.seconds:.0f} s"
        yield f"suite {suite.number}: found {record['n']} turns in {length:.0f} s; it takes {needed}"


def _near(found: float, expected: float, share: float = ROUNDING) -> bool:
    return abs(found - expected) <= share * max(abs(expected), 1.0)
