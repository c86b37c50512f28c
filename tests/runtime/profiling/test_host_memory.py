"""Profiling: what a turn takes of host memory is said before it begins; which GPU is recognised by its name."""

from __future__ import annotations

import pytest

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.diagnose.doctor import run_checks
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling import host_memory

GIB = 2**30


def test_a_machine_that_is_too_small_is_told_what_plays_there(full: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (16 * GIB, 16 * GIB))
    host_memory.check(full, "torch-cpu", "bf16")
    for device in ("cpu", "torch-cpu"):
        with pytest.raises(BackendError, match="--device torch-cpu --precision bf16"):
            host_memory.check(full, device)
    found = next(check for check in run_checks(str(full.folder)) if check.what == "host memory")
    assert found.state == "ok"  # the files are those of a tiny bundle
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: (GIB, 2 * GIB))
    with pytest.raises(BackendError, match="lower precision, or a machine with more memory"):
        host_memory.check(full, "torch-cpu", "bf16")
