"""The figures of a record that follow from its turns: percentiles, latencies, speed, first and late turns.

`bench run` writes what `bench verify` counts again here. Knows columns of numbers; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from animegamer_rt.profiling.percentiles import percentiles

from .record_form import STAGES

LATE_TURN = 10
"""From this turn of a game on, its history is as long as it gets in every bundle so far."""
Columns = Mapping[str, Sequence[float]]
"""Every timed turn, a column each: `record_form.SAMPLE_COLUMNS`."""


def figures_of(columns: Columns, frames: int, playback_seconds: float) -> dict[str, Any]:
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


def _of_turns(columns: Columns, numbers: range) -> dict[str, float | None] | None:
    """Count and percentiles of the turns with these numbers in their games; None if there are none."""
    found = [seconds for turn, seconds in zip(columns["turn"], columns["seconds"], strict=True) if turn in numbers]
    return {"n": len(found), **percentiles(found)} if found else None
