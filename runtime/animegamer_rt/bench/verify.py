"""`animegamer-rt bench verify FILE`: whether a record is whole, unchanged and plausible.

Knows the fields of a record of turns (FIELDS) and what they must agree in; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from animegamer_rt.errors import ConfigError
from animegamer_rt.untrusted import plain

from .records import SEAL, TURN_FORMAT, read_json, seal
from .report import SAMPLES
from .statistics import FEWEST
from .suite import HASHES, load_suite

NONE = type(None)
FIELDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("format", "n", "steps", "network_rows"), (int,)),
        **dict.fromkeys(("date", "commit", "machine", "command_line", "kernel", "device", "runs_on", "timed"), (str,)),
        **dict.fromkeys(("bundle", "origin", "plan", "energy_source", "memory_source", SEAL), (str,)),
        **dict.fromkeys(("libc", "governor", "preset", "suite_sha256", "fingerprint", "peer"), (str, NONE)),
        **dict.fromkeys(("precision_asked", "attention", "floor_source"), (str, NONE)),
        **dict.fromkeys(("software", "threads", "packages", "precision", "quality_gate", "activity"), (dict,)),
        **dict.fromkeys(("stages", "fidelity", SAMPLES), (dict,)),
        **dict.fromkeys(("gpu", "first_turn", "turn_10_and_later"), (dict, NONE)),
        **dict.fromkeys(("shape", "unsteady"), (list,)),
        "instruction_sets": (list, NONE),
        "complete": (bool,),
        "packages_pinned": (bool, NONE),
        **dict.fromkeys(("suite", "ram_mib"), (int, NONE)),
        **dict.fromkeys(("cost_rows", "playback_seconds", "sustained_seconds_per_turn"), (int, float)),
        **dict.fromkeys(("seconds_per_turn_p50", "seconds_per_turn_max", "seconds_to_state_p50"), (int, float)),
        **dict.fromkeys(("seconds_to_first_frame_p50", "fps", "real_time_factor"), (int, float)),
        **dict.fromkeys(("seconds_per_turn_p90", "seconds_per_turn_p95", "seconds_per_turn_p99"), (int, float, NONE)),
        **dict.fromkeys(("denoiser_floor_seconds", "ratio_to_floor"), (int, float, NONE)),
        **dict.fromkeys(("denoiser_floor_before_seconds", "denoiser_floor_after_seconds"), (int, float, NONE)),
        **dict.fromkeys(("start_to_prompt_seconds", "first_turn_of_process_seconds"), (int, float, NONE)),
        **dict.fromkeys(("energy_j_per_turn", "memory_peak_mib", "host_memory_peak_mib"), (int, float, NONE)),
    }
)
"""Field of a record of turns -> its types in JSON. Every record has all of them."""
JSON_TYPES: Mapping[type, str] = MappingProxyType(
    {int: "integer", float: "number", str: "string", bool: "boolean", dict: "object", list: "array", NONE: "null"}
)
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


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record of turns."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A record of turns of animegamer-rt, format {TURN_FORMAT}",
        "type": "object",
        "properties": {name: {"type": [JSON_TYPES[one] for one in types]} for name, types in FIELDS.items()},
        "required": sorted(FIELDS),
    }


def problems(record: object) -> Iterator[str]:
    """What is wrong with a record, a line each; nothing for a sound one."""
    if not isinstance(record, dict):
        yield "not a record: it is no JSON object"
        return
    if record.get("format") != TURN_FORMAT or record.get("kind", "turn") != "turn":
        told = f"format {record.get('format')}, kind {record.get('kind', 'turn')}"
        yield f"not a record of turns of format {TURN_FORMAT}; found {told}: measure again with this version"
        return
    missing = [name for name in FIELDS if name not in record]
    yield from (f"{name}: missing" for name in missing)
    mistyped = [name for name, types in FIELDS.items() if name in record and not _is_one(record[name], types)]
    for name in mistyped:
        found = JSON_TYPES.get(type(record[name]), "?")
        yield f"{name}: found {found}, expected {' or '.join(JSON_TYPES[one] for one in FIELDS[name])}"
    if record.get(SEAL) != seal(record)[SEAL]:
        yield f"{SEAL}: not the hash of the other fields: the record was changed after it was written"
    if not missing and not mistyped:
        try:
            yield from _implausible(record)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            yield f"a field has not the form that bench gives it: {type(error).__name__} {error}"


def _is_one(value: object, types: tuple[type, ...]) -> bool:
    return type(value) in types


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
