"""The tables of the documents: what they select from the records, and that they are up to date."""

from __future__ import annotations

from typing import Any

from benchmarks.records import newest

from benchmarks import tables

STAGES = ("predictor", "denoiser", "vae")


def record(date: str = "2026-01-02", plan: str = "exact", total: float = 10.0, **changes: Any) -> dict[str, Any]:
    """A record of turns at full size."""
    about = {"date": date, "machine": "a machine", "bundle": "full", "plan": plan, "peer": None, "network_rows": 98}
    about |= {"stages": {stage: {"p50": share * total} for stage, share in zip(STAGES, (0.1, 0.6, 0.3), strict=True)}}
    about |= {"seconds_per_turn_p50": total, "seconds_per_turn_p95": 12.0, "playback_seconds": 2.125}
    about |= {"fidelity": {}, "commit": "abc", "precision": {"denoiser": "fp8"}}
    return about | changes


def test_only_the_newest_of_a_kind_is_shown_and_the_slowest_comes_first() -> None:
    records = [
        record("2026-01-01", "exact", 9.0),
        record("2026-01-01", "fast", 1.0),
        record("2026-01-02", "exact", 4.0),
    ]
    shown = [(one["plan"], one["seconds_per_turn_p50"]) for one in newest(records)]
    assert shown == [("exact", 4.0), ("fast", 1.0)]


def test_a_later_run_does_not_replace_a_suite() -> None:
    of_suite = record("2026-01-01", suite=1, total=5.0)
    assert newest([of_suite, record("2026-01-02")]) == [of_suite]


def test_readmes_table_names_its_machines_and_random_weights_in_the_title() -> None:
    of_gpu = {"device": "torch", "origin": "random weights", "machine": "a GPU", "n": 3, "memory_peak_mib": 2048.0}
    full = [record(total=total, variant=name, **of_gpu) for total, name in ((4.0, "fp8"), (5.0, "fp8-12gb"))]
    pocket = [
        record(date, bundle="pocket", machine=machine, total=total, n=300)
        for date, machine, total in (("2026-01-01", "an older CPU", 3.0), ("2026-01-02", "a CPU", 2.0))
    ]
    title, *rows = (line for line in tables.headline_table([*full, *pocket]).splitlines() if line)
    assert "full with random weights (times, no pictures) on a GPU; pocket on a CPU" in title
    assert rows[2:] == [
        "| full, **exact**, fp8, 12 GB | 98 | **5.00** | 3 | - | 2.0 |",
        "| full, **exact**, fp8 | 98 | **4.00** | 3 | - | 2.0 |",
        "| pocket, **exact** | 98 | **2.00** | 300 | - | - |",
    ], "one machine a bundle, and its smaller cards"


def test_tables_are_up_to_date() -> None:
    assert tables.main(["--check"]) == 0, "run: python benchmarks/tables.py"
