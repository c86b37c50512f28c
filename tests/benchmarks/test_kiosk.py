"""What the kiosk benchmark calls growth, and what it calls a fault."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.kiosk import faults, growth_a_day


@pytest.mark.parametrize(
    ("mib_at_end", "hours", "noise_mib", "verdict"),
    [(0.0, 24, 0.5, "none"), (30.0, 24, 0.5, "grows"), (1.0, 0.5, 0.5, "not shown"), (3.0, 24, 0.1, "none")],
    ids=["flat", "climbs", "a short run", "within the goal"],
)
def test_growth_is_told_from_noise_and_from_a_run_that_is_too_short(
    mib_at_end: float, hours: float, noise_mib: float, verdict: str
) -> None:
    shares = [number / 100 for number in range(100)]
    samples = [
        {"page_s": 3600 * hours * share, "gateway": 30 + mib_at_end * share + noise_mib * (number % 2)}
        for number, share in enumerate(shares)
    ]
    assert growth_a_day(samples, "gateway")["verdict"] == verdict


def test_a_page_that_is_emptied_without_a_visitor_is_a_fault() -> None:
    record: dict[str, Any] = {"growth": {}, "restarts": 0, "visitors": 1, "emptied": 1}
    assert faults(record) == []
    assert faults(record | {"emptied": 39}) == ["the page was emptied 39 times for 1 visitors"]
    assert faults(record | {"growth": {"gateway": {"verdict": "grows"}}}) == ["gateway grows"]
