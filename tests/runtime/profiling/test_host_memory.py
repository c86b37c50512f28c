"""Profiling: what a turn takes of host memory is said before it begins; which GPU is recognised by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from animegamer_bench.records import read_records
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.diagnose.doctor import run_checks
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling import host_memory

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
GIB = 2**30


def test_memory_of_each_stage_is_said_as_it_was_measured(full: Bundle) -> None:
    *_, record = (record for record in read_records(RESULTS, "full-size-turn") if "play" in record)
    said = host_memory.with_torch(full, record["computes_in"])
    assert said.one_at_a_time
    kept = host_memory.PROCESS_BYTES + host_memory.LEFT_BYTES
    for stage, measured in record["play"]["stages"].items():
        assert (said.stages[stage] + kept) / GIB == pytest.approx(measured["peak_gib"], rel=0.2)
    assert said.peak_bytes / GIB == pytest.approx(record["play"]["peak_gib"], rel=0.05)


def test_a_machine_that_is_too_small_is_told_what_plays_there(full: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (8 * GIB, 8 * GIB))
    host_memory.check(full, "torch-cpu", "bf16")
    for device in ("cpu", "torch-cpu"):
        with pytest.raises(BackendError, match="--device torch-cpu --precision bf16"):
            host_memory.check(full, device)
    found = next(check for check in run_checks(str(full.folder)) if check.what == "host memory")
    assert found.state == "ok"  # the files are those of a tiny bundle
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (GIB, 2 * GIB))
    with pytest.raises(BackendError, match="lower precision, or a machine with more memory"):
        host_memory.check(full, "torch-cpu", "bf16")
