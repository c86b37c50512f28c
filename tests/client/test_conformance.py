"""The Python client in the conformance suite, and its table; clients that are built play it in their own tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from client.conformance import run as conformance

README = Path(__file__).parents[2] / "client" / "README.md"


def test_the_scenarios_of_the_conformance_suite_pass() -> None:
    names = ("python", "aio")
    with ThreadPoolExecutor() as pool:  # most scenarios wait
        played = dict(zip(names, pool.map(conformance.play, names), strict=True))
    assert played == {name: conformance.recorded()[name] for name in names}


def test_the_table_shows_the_record() -> None:
    readme = README.read_text(encoding="utf-8")
    assert conformance.with_table(readme) == readme, "run: python -m client.conformance.run"
    every = {scenario["name"] for scenario in conformance.SCENARIOS}
    assert {name: set(outcomes) for name, outcomes in conformance.recorded().items()} == dict.fromkeys(
        conformance.CLIENTS, every
    )
