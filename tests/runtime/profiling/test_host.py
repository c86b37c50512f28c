"""A record says of the machine what the measured process could use."""

from __future__ import annotations

import os

import pytest

from animegamer_rt.profiling.host import describe_host


@pytest.mark.parametrize(("mine", "words"), [({0, 1}, ", 2 cores, "), ({1}, ", 1 of 2 cores, ")])
def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch, mine: set[int], words: str) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: mine, raising=False)
    assert words in describe_host()
