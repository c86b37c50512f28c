"""Reads the records of `animegamer-rt bench`, a JSON file a run, and derives the figures that follow from the turns.

`bench run` writes what `bench verify` computes again here. Knows columns of numbers; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.bundle import json_file
from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.percentiles import percentiles

Record = dict[str, Any]
TURN_FORMAT = 2
"""Version of the records of turns."""
UPDATE = "read it with a newer animegamer-rt"
STAGES = ("predictor", "denoiser", "vae")
SAMPLES = "samples"
"""The field with every timed turn, a column for each of SAMPLE_COLUMNS."""
SAMPLE_COLUMNS = ("game", "turn", "at", "seconds", *STAGES, "to_state", "to_first_frame")
LATE_TURN = 10
"""From this turn of a game on, its history is as long as it gets in every bundle so far."""
TENTH = 0.1
"""Largest change between halves or of the roofline bound, and largest share of the processor for other programs."""
HALVES_TURNS = 8
"""Fewest turns whose halves can be compared."""
SLEEP_S = 1.0
THROTTLED = ("thermal", "power brake", "hardware")
"""Words of a card's throttle reasons that slow it below what it was set to."""


def read_records(folder: Path, kind: str = "turn") -> list[Record]:
    """All records of one kind in a folder, oldest first. A record without `kind` is of turns.

    Other JSON files in the folder, such as a trace, have no date and are skipped. Raises ConfigError for a file that is
    not JSON.
    """
    found = map(read_json, sorted(folder.glob("*.json")))
    chosen = [
        record
        for record in found
        if isinstance(record, dict) and "date" in record and record.get("kind", "turn") == kind
    ]
    return sorted(chosen, key=lambda record: str(record["date"]))


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ConfigError."""
    try:
        return json_file.parse_json(read_bounded(path, json_file.MAX_BYTES))
    except (OSError, ValueError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = "give a file that `animegamer-rt bench` wrote"
        raise ConfigError("the record cannot be read", where=path, found=found, do=do) from error


def of_newer_version(record: object) -> bool:
    """Whether a later version wrote a record, whose fields may mean something else."""
    return isinstance(record, dict) and isinstance(record.get("format"), int) and record["format"] > TURN_FORMAT


def of_the_gpu(record: Mapping[str, Any]) -> bool:
    """Whether benchmarks/gpu/run.py made a record of turns, which has few of them."""
    return bool(record.get("variant") or record.get("peer"))


def figures_of(columns: Mapping[str, Sequence[float]], frames: int, playback_seconds: float) -> dict[str, Any]:
    """Record fields, in seconds; a percentile that the count does not carry is None. There is at least one turn.

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
    """Reasons to run again, in words; none for a steady run.

    seconds: of each turn. during: `activity.describe` of the timed part.
    """
    reasons = [] if complete else [f"interrupted after {len(seconds)} turns"]
    if len(seconds) < HALVES_TURNS:
        reasons.append(f"{len(seconds)} turns are too few to tell: at least {HALVES_TURNS} are needed")
    else:
        middle = len(seconds) // 2
        change = float(np.median(seconds[middle:]) / np.median(seconds[:middle]))
        if differ(1.0, change):
            how = "longer" if change > 1 else "shorter"
            reasons.append(f"turns of the second half took {100 * abs(change - 1):.0f} % {how} than those of the first")
    taken = (during.get("others_share") or 0.0) + (during.get("stolen_share") or 0.0)
    if taken >= TENTH:
        reasons.append(f"other programs or machines took {100 * taken:.0f} % of the processor's time")
    if (asleep := during.get("asleep_seconds") or 0.0) >= SLEEP_S:
        reasons.append(f"the machine slept for {asleep:.0f} s")
    slow = [reason for reason in during["throttled"] if any(word in reason for word in THROTTLED)]
    if slow:
        reasons.append(f"the card throttled: {', '.join(slow)}")
    return reasons


def differ(before: float, after: float) -> bool:
    """Whether two figures differ by a tenth of the smaller one, or more."""
    return bool(max(before, after) >= (1 + TENTH) * min(before, after))
