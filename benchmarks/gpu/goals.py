"""The goals for a turn at full size on one H100, and which of them the measured turns reach.

Knows records of turns; nothing of how they were measured. The figures of another GPU are compared with the same goals,
and its name is in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
Figure = Callable[[Record], float | None]
BASELINE = "diffusers eager"
STATE = "seconds_to_state_history_read_p50"


def seconds(record: Record) -> float | None:
    """Median seconds of a turn."""
    return float(record["seconds_per_turn_p50"])


def over_roofline(record: Record) -> float | None:
    """The denoiser's time over its roofline bound; None where that is not known."""
    floor = record["denoiser_floor_seconds"]
    return record["stages"]["denoiser"]["p50"] / floor if floor else None


def memory_gb(record: Record) -> float | None:
    """Peak memory in GB: the larger of PyTorch's count and the GPU's, which includes CUDA's context and libraries."""
    counts = (record["memory_peak_mib"], record.get("memory_card_peak_mib"))
    return max((mib * 2**20 / 1e9 for mib in counts if mib is not None), default=None)


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for the best turn of a plan. figure: what is compared. precision: of the denoiser, None for any.

    peer: the bound is the least speed-up over the baseline's turn; otherwise it is the largest value of the figure.
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
    Goal("exact in FP8, denoiser over its roofline bound", "exact", 1.15, over_roofline, "fp8"),
    Goal("exact in bf16, denoiser over its roofline bound", "exact", 1.15, over_roofline, "bf16"),
    Goal("balanced, seconds", "balanced", 1.0),
    Goal("fast, seconds", "fast", 0.6),
    Goal("state, seconds, the history read before", "exact", 0.06, lambda record: record.get(STATE)),
    Goal("first frame, share of the vae's time", "exact", 0.6, lambda record: float(record["first_frame_of_vae"])),
    Goal("peak memory, GB", "exact", 12.0, memory_gb),
    Goal("exact, times as fast as diffusers eager", "exact", 2.7, peer=True),
    Goal("balanced, times as fast as diffusers eager", "balanced", 10.0, peer=True),
    Goal("fast, times as fast as diffusers eager", "fast", 17.0, peer=True),
)
WORDS = {True: "reached", False: "missed", None: "not measured"}


def goals(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry per goal. found and reached are null where no turn at full size was measured for it."""
    ours, peer = _at_full_size(records)
    return [_judge(goal, ours, peer) for goal in GOALS]


def lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The results of `goals` as lines of text."""
    text = []
    for goal in results:
        bound = f"at least {goal['least']}" if "least" in goal else f"at most {goal['most']}"
        found = "" if goal["found"] is None else f"{goal['found']}, by {goal['variant']}, {goal['attention']} attention"
        text.append(f"{WORDS[goal['reached']]:<12} {goal['goal']}: {found or 'nothing'} ({bound})")
    return text


def _at_full_size(records: Sequence[Record]) -> tuple[list[Record], float | None]:
    """This project's turns, and the seconds of the baseline's turn."""
    full = [record for record in records if record["bundle"] == "full"]
    peer = next((seconds(record) for record in full if record["peer"] == BASELINE), None)
    return [record for record in full if record["peer"] is None], peer


def _matches(record: Record, goal: Goal) -> bool:
    """Whether a turn has the goal's plan and precision. A turn with INT8 attention scores does not count as bf16."""
    rounded = goal.precision == "bf16" and str(record.get("attention")).startswith("int8")
    return record["plan"] == goal.plan and goal.precision in (None, record["precision"]["denoiser"]) and not rounded


def _judge(goal: Goal, ours: Sequence[Record], peer: float | None) -> dict[str, Any]:
    found, by = None, None
    for record in ours:
        value = goal.figure(record) if _matches(record, goal) else None
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
