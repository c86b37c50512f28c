"""What a soak's record must show: each goal, what was found, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NOTHING = ("turns_lost", "wrong_bytes", "replays_changed", "failures", "left_behind")
SLOWER, QUIET_TURNS = 2.0, 500
"""How much longer than in quiet turns the 95th percentile may be, and how many quiet turns it takes to tell."""
GROWTH_MIB, LOG_MIB = 1.0, 50.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal: `found` must be at most `goal`. None: the soak was too short to tell."""

    name: str
    found: float | None
    goal: float

    @property
    def met(self) -> bool:
        """False only if it was judged."""
        return self.found is None or self.found <= self.goal

    def __str__(self) -> str:
        found = "too short to tell" if self.found is None else f"{self.found:g}"
        return f"{'ok' if self.met else 'MISSED':8}{self.name.replace('_', ' ')}: {found} (at most {self.goal:g})"


def verdicts(record: Mapping[str, Any]) -> Iterator[Verdict]:
    """All goals of a soak."""
    for name in NOTHING:
        found = record[name]
        yield Verdict(name, found if isinstance(found, int) else len(found), 0)
    yield Verdict("store_file_mib_max", record["store_file_mib_max"], record["quota_mib"])
    yield Verdict("log_mib", record["log_mib"], LOG_MIB)
    for name in ("mib_per_1000_turns", "worker_mib_per_1000_turns", "gateway_mib_per_1000_turns"):
        yield Verdict(name, record[name], GROWTH_MIB)
    turns = record["turn_seconds"]
    judged = turns["quiet"]["turns"] >= QUIET_TURNS
    slower = round(turns["all"]["p95"] / turns["quiet"]["p95"], 2) if judged else None
    yield Verdict("p95_of_a_turn_by_that_of_quiet_ones", slower, SLOWER)
