"""Writes and reads the records of `animegamer-rt bench`, one JSON file per run, and derives figures from the turns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from animegamer_rt.bundle import json_file
from animegamer_rt.bundle.files import read_bounded, remove, write_error, write_file
from animegamer_rt.errors import ConfigError

Record = dict[str, Any]
NUMBERS = re.compile(r"\[[-+\d.eE,\s]+\]")
"""A list of numbers, written on one line."""
TURN_FORMAT = 2
"""Version of the records of turns."""
UPDATE = "read it with a newer animegamer-rt"
STAGES = ("predictor", "denoiser", "vae")
SAMPLES = "samples"
"""The field with every timed turn, one column per entry of SAMPLE_COLUMNS."""
SAMPLE_COLUMNS = ("game", "turn", "at", "seconds", *STAGES, "to_state", "to_first_frame")
LATE_TURN = 10
"""From this turn of a game on, the history has its full length in every bundle so far."""
TENTH = 0.1
"""Largest change between halves, and largest CPU share of other programs."""
HALVES_TURNS = 8
"""Minimum number of turns for comparing halves."""
FEWEST: Mapping[int, int] = MappingProxyType({50: 1, 90: 10, 95: 20, 99: 100})
"""Percentile -> minimum number of values, so that one value lies above it: otherwise it would be the maximum."""
SLEEP_S = 1.0
THROTTLED = ("thermal", "power brake", "hardware")
"""Throttle reasons of a card that slow it below its settings."""


def write_record(results: Path, name: str, record: Mapping[str, Any]) -> Path:
    """Writes a record as TIME-NAME.json, never over another file; returns the path. Raises OutputError.

    A name may come from a bundle: characters other than letters, digits and `.-_` become `_`.
    """
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    path = _reserve_name(results, f"{stamp}-{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:100]}", ".json")
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()), json.dumps(record, indent=2))
    try:
        write_file(path, (text + "\n").encode())
    except BaseException:
        remove(path)  # The reserved name: an empty file would be taken for a broken record.
        raise
    return path


def _reserve_name(folder: Path, stem: str, suffix: str) -> Path:
    """The first of STEM.SUFFIX, STEM-2.SUFFIX, .. that the folder does not have, made as an empty file.

    Another program that asks at the same time gets another name. Raises OutputError.
    """
    path, number = folder / f"{stem}{suffix}", 1
    while True:
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1
            path = folder / f"{stem}-{number}{suffix}"
        except OSError as error:
            raise write_error(path, error) from error


def read_records(folder: Path, kind: str = "turn") -> list[Record]:
    """All records of one kind in a folder, oldest first. A record without `kind` is of turns.

    Other JSON files in the folder, such as a trace, have no date and are skipped. Raises ConfigError for a file that is
    not JSON.
    """
    found = [one for one in map(read_json, sorted(folder.glob("*.json"))) if isinstance(one, dict) and "date" in one]
    return sorted((one for one in found if one.get("kind", "turn") == kind), key=lambda one: str(one["date"]))


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ConfigError."""
    try:
        return json_file.parse_json(read_bounded(path, json_file.MAX_BYTES))
    except (OSError, ValueError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = "pass a record of `animegamer-rt bench`"
        raise ConfigError("the record cannot be read", where=path, found=found, do=do) from error


def of_newer_version(record: object) -> bool:
    """Whether a later version, with possibly different fields, wrote the record."""
    return isinstance(record, dict) and isinstance(record.get("format"), int) and record["format"] > TURN_FORMAT


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile of measured seconds, to four digits: no machine repeats more."""
    return round(float(np.percentile(values, percent)), 4)


def percentiles(values: Sequence[float], wanted: Sequence[int] = tuple(FEWEST)) -> dict[str, float | None]:
    """p50, p90, p95, p99 and max, rounded to four digits; None for a percentile of too few values."""
    found = {f"p{p}": percentile(values, p) if len(values) >= FEWEST[p] else None for p in wanted}
    return {**found, "max": round(max(values), 4)}


def series(values: Iterable[float]) -> dict[str, Any]:
    """Median, 95th percentile, maximum and count."""
    raw = list(values)
    return {**percentiles(raw, (50, 95)), "n": len(raw)}


def figures_of(columns: Mapping[str, Sequence[float]], frames: int, playback_seconds: float) -> dict[str, Any]:
    """Record fields, in seconds; a percentile of too few turns is None. There is at least one turn.

    frames, playback_seconds: of a clip.
    """
    totals = percentiles(columns["seconds"])
    turn = totals["p50"]
    return {
        **{f"seconds_per_turn_{name}": value for name, value in totals.items()},
        "stages": {stage: percentiles(columns[stage]) for stage in STAGES},
        "seconds_to_state_p50": percentiles(columns["to_state"])["p50"],
        "seconds_to_first_frame_p50": percentiles(columns["to_first_frame"])["p50"],
        "fps": round(frames / turn, 3) if turn else None,
        "real_time_factor": round(playback_seconds / turn, 3) if turn else None,
        "first_turn": _of_turns(columns, range(1, 2)),
        f"turn_{LATE_TURN}_and_later": _of_turns(columns, range(LATE_TURN, 2**63)),
    }


def _of_turns(columns: Mapping[str, Sequence[float]], numbers: range) -> dict[str, float | None] | None:
    """Count and percentiles of the turns with these numbers in their games; None if there are none."""
    found = [seconds for turn, seconds in zip(columns["turn"], columns["seconds"], strict=True) if turn in numbers]
    return {"n": len(found), **percentiles(found)} if found else None


def unsteady(seconds: Sequence[float], during: Mapping[str, Any], complete: bool = True) -> list[str]:
    """Reasons to repeat the run, as text; none for a steady run.

    seconds: of each turn. during: `machine.describe` of the timed part.
    """
    reasons = [] if complete else [f"interrupted after {len(seconds)} turns"]
    if len(seconds) < HALVES_TURNS:
        reasons.append(f"{len(seconds)} turns are too few: at least {HALVES_TURNS} are needed")
    else:
        middle = len(seconds) // 2
        change = float(np.median(seconds[middle:]) / np.median(seconds[:middle]))
        if max(1.0, change) >= (1 + TENTH) * min(1.0, change):
            how = "longer" if change > 1 else "shorter"
            reasons.append(f"turns of the second half took {100 * abs(change - 1):.0f} % {how} than those of the first")
    taken = (during.get("others_share") or 0.0) + (during.get("stolen_share") or 0.0)
    if taken >= TENTH:
        reasons.append(f"other programs or machines used {100 * taken:.0f} % of the processor's time")
    if (asleep := during.get("asleep_seconds") or 0.0) >= SLEEP_S:
        reasons.append(f"the machine slept for {asleep:.0f} s")
    slow = [reason for reason in during["throttled"] if any(word in reason for word in THROTTLED)]
    if slow:
        reasons.append(f"the card throttled: {', '.join(slow)}")
    return reasons
