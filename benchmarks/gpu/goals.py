"""What a turn at full size is to take on one H100, and what was found: goal by goal, and by one variant together.

Knows records of turns; nothing of how they were measured. Another GPU's figures are held against the same goals, and
its name stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Record = Mapping[str, Any]
Figure = Callable[[Record], float | None]
BASELINE = "diffusers eager"


def seconds(record: Record) -> float | None:
    """Of a turn, median."""
    return float(record["seconds_per_turn_p50"])


def of_floor(record: Record) -> float | None:
    """The denoiser's time over its floor."""
    floor = record["denoiser_floor_seconds"]
    return record["stages"]["denoiser"]["p50"] / floor if floor else None


def memory_gb(record: Record) -> float | None:
    """What was taken of the card at most: torch's count, or the card's, which has context and libraries in it."""
    counts = (record["memory_peak_mib"], record.get("memory_card_peak_mib"))
    return max((mib * 2**20 / 1e9 for mib in counts if mib is not None), default=None)


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
WORDS = {True: "reached", False: "missed", None: "not measured"}


def goals(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry a goal; found and reached are null where nothing at full size was measured that tells."""
    ours, peer = _at_full_size(records)
    return [_held(goal, ours, peer) for goal in GOALS]


def together(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry a precision that goals name: the variant that reaches most of its goals and of those of no precision,
    and what it misses. reached is null where it misses none and not all were measured.
    """
    ours, peer = _at_full_size(records)
    entries = []
    for precision in dict.fromkeys(goal.precision for goal in GOALS if goal.precision is not None):
        asked = [replace(goal, precision=precision) for goal in GOALS if goal.precision in (None, precision)]
        variants = dict.fromkeys(record["variant"] for record in ours if any(_tells(record, goal) for goal in asked))
        held = [
            [_held(goal, [record for record in ours if record["variant"] == variant], peer) for goal in asked]
            for variant in variants
        ] or [[_held(goal, [], peer) for goal in asked]]
        best = max(held, key=lambda found: [sum(one["reached"] is was for one in found) for was in (True, None)])
        missed, unknown = ([one["goal"] for one in best if one["reached"] is was] for was in (False, None))
        by = next((one for one in best if one["variant"]), best[0])
        entries.append(
            {
                "precision": precision,
                "variant": by["variant"],
                "attention": by["attention"],
                "gpu": by["gpu"],
                "reached": False if missed else None if unknown else True,
                "missed": missed,
                "not_measured": unknown,
            }
        )
    return entries


def lines(held: Sequence[Mapping[str, Any]], by_one: Sequence[Mapping[str, Any]]) -> list[str]:
    """What both of the above say, in words."""
    said = []
    for goal in held:
        bound = f"at least {goal['least']}" if "least" in goal else f"at most {goal['most']}"
        found = "" if goal["found"] is None else f"{goal['found']}, by {goal['variant']}, {goal['attention']} attention"
        said.append(f"{WORDS[goal['reached']]:<12} {goal['goal']}: {found or 'nothing'} ({bound})")
    for one in by_one:
        most = f": {one['variant']}, {one['attention']} attention" if one["variant"] else ""
        misses = f"; misses {', '.join(one['missed'])}" if one["missed"] else ""
        lacks = f"; not measured: {', '.join(one['not_measured'])}" if most and one["not_measured"] else ""
        said.append(f"{WORDS[one['reached']]:<12} all of {one['precision']} by one variant{most}{misses}{lacks}")
    return said


def _at_full_size(records: Sequence[Record]) -> tuple[list[Record], float | None]:
    """Our turns, and the seconds of the yardstick's."""
    full = [record for record in records if record["size"] == "full"]
    peer = next((seconds(record) for record in full if record["peer"] == BASELINE), None)
    return [record for record in full if record["peer"] is None], peer


def _tells(record: Record, goal: Goal) -> bool:
    """Whether a turn is of the goal's plan and precision; one with INT8 scores is no turn in bf16."""
    rounded = goal.precision == "bf16" and str(record.get("attention")).startswith("int8")
    return record["plan"] == goal.plan and goal.precision in (None, record["precision"]["denoiser"]) and not rounded


def _held(goal: Goal, ours: Sequence[Record], peer: float | None) -> dict[str, Any]:
    found, by = None, None
    for record in ours:
        value = goal.figure(record) if _tells(record, goal) else None
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
