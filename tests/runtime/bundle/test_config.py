"""Settings are read strictly: nothing unknown, nothing missing, nothing of another type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from animegamer_rt.bundle.config import read_record, write_record
from animegamer_rt.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Inner:
    deadline_ms: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner
    counts: Mapping[str, int] = field(default_factory=dict)
    enabled: bool = True
    limit: int | None = None


DATA = {"inner": {"deadline_ms": 3, "names": ["a", "b"]}, "counts": {"x": 1}, "enabled": False, "limit": 4}


def test_record_reads_back_what_was_written() -> None:
    record = read_record(Outer, DATA, "test")
    assert record == Outer(Inner(3.0, ("a", "b")), {"x": 1}, False, 4)
    assert read_record(Outer, write_record(record), "test") == record


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"inner": {"deadline_sm": 3}}, "test: inner: unknown key 'deadline_sm'; did you mean 'deadline_ms'"),
        ({}, "test: the key 'inner' is missing"),
        ({"inner": {"deadline_ms": "soon"}}, "test: inner: deadline_ms: wrong type of value; found 'soon'"),
        ({"inner": {"deadline_ms": 1}, "limit": True}, "limit: wrong type of value; found True; expected int"),
        ({"inner": {"deadline_ms": 1, "names": "ab"}}, "names: wrong type of value; found 'ab'; expected a list"),
    ],
)
def test_wrong_settings_are_named(data: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_record(Outer, data, "test")
    assert message in str(caught.value)
