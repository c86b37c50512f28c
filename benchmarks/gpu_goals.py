"""What a turn at full size is to take on one H100, and what was found: a list of goal, found, reached.

Knows records of turns; nothing of how they were measured. Another GPU's figures are held against the same goals, and
its name stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Figure = Callable[[Record], float | None]
YARDSTICK = "diffusers eager"


def seconds(record: Record) -> float | None:
    """Of a turn, median."""
    return float(record["seconds_per_turn_p50"])


def of_floor(record: Record) -> float | None:
    """The denoiser's time over its floor."""
    floor = record["denoiser_floor_seconds"]
    return record["stages"]["denoiser"]["p50"] / floor if floor else None


def memory_gb(record: Record) -> float | None:
    """What torch took from the card at most."""
    mib = record["memory_peak_mib"]
    return None if mib is None else mib * 2**20 / 1e9


@dataclass(frozen=True, slots=True)
class Goal:
    """The best of a plan's turns, of one precision if that is said, is at most this much; `peer`: at least so much
    faster than the yardstick's turn.
    """

    goal: str
    plan: str
    bound: float
    figure: Figure = seconds
    precision: str | None = None
    peer: bool = False


GOALS = (
    Goal("exact in FP8, seconds", "exact", 4.2, precision="fp8"),
    Goal("exact in bf16, seconds", "exact", 5.6, precision="bf16"),
    Goal("exact in FP8, denoiser over its floor", "exact", 1.15, of_floor, "fp8"),
    Goal("exact in bf16, denoiser over its floor", "exact", 1.15, of_floor, "bf16"),
    Goal("balanced, seconds", "balanced", 2.1),
    Goal("fast, seconds", "fast", 1.2),
    Goal("state after, seconds", "exact", 0.06, lambda record: float(record["seconds_to_state_p50"])),
    Goal("first frame, of the vae's time", "exact", 0.6, lambda record: float(record["first_frame_of_vae"])),
    Goal("peak memory, GB", "exact", 12.0, memory_gb),
    Goal("exact, times as fast as diffusers eager", "exact", 2.7, peer=True),
    Goal("balanced, times as fast as diffusers eager", "balanced", 5.5, peer=True),
    Goal("fast, times as fast as diffusers eager", "fast", 9.5, peer=True),
)


def goals(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry a goal; found and reached are null where nothing at full size was measured that tells."""
    full = [record for record in records if record["size"] == "full"]
    ours = [record for record in full if record["peer"] is None]
    peer = next((seconds(record) for record in full if record["peer"] == YARDSTICK), None)
    return [_held(goal, ours, peer) for goal in GOALS]


def _held(goal: Goal, ours: Sequence[Record], peer: float | None) -> dict[str, Any]:
    found, by = None, None
    for record in ours:
        wanted = goal.precision in (None, record["precision"]["denoiser"])
        value = goal.figure(record) if wanted and record["plan"] == goal.plan else None
        if value is not None and (found is None or value < found):
            found, by = value, record
    if goal.peer and found is not None:
        found = peer / found if peer is not None else None
    reached = None if found is None else (found >= goal.bound if goal.peer else found <= goal.bound)
    gpu = by["gpu"]["name"] if by is not None and by["gpu"] else None
    about = {"goal": goal.goal, ("least" if goal.peer else "most"): goal.bound}
    return {
        **about,
        "found": None if found is None else round(found, 4),
        "reached": reached,
        "gpu": gpu,
        "variant": by["variant"] if by is not None and found is not None else None,
        "attention": by.get("attention") if by is not None and found is not None else None,
    }
