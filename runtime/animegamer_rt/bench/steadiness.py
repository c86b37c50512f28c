"""Why a run's figures may not be repeated: its halves differ, the machine was busy or slept, the card throttled.

Knows figures of a run; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .statistics import HALVES_TURNS, halves_ratio

TENTH = 0.1
"""Largest change between halves or of the roofline bound, and largest share of the processor for others."""
SLEEP_S = 1.0
THROTTLED = ("thermal", "power brake", "hardware")
"""Words of a card's throttle reasons that slow it below what it was set to."""


def unsteady(seconds: Sequence[float], during: Mapping[str, Any], complete: bool = True) -> list[str]:
    """Reasons to run again, in words; none for a steady run.

    seconds: of each turn. during: `activity.describe` of the timed part.
    """
    reasons = [] if complete else [f"interrupted after {len(seconds)} turns"]
    change = halves_ratio(seconds)
    if change is None:
        reasons.append(f"{len(seconds)} turns are too few to tell: at least {HALVES_TURNS} are needed")
    elif differ(1.0, change):
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
