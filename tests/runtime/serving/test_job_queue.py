"""The sessions of an hour are bounded as the options say."""

from __future__ import annotations

import pytest

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.server.job_queue import SESSION_IN_USE_S, JobQueue
from animegamer_rt.serving.server.options import ServeOptions


def test_a_session_is_in_use_for_an_hour() -> None:
    queue = JobQueue(ServeOptions(sessions=2))
    queue.use_session("early", 0.0, "a connection")
    queue.use_session("late", 10.0, "a connection")
    with pytest.raises(ProtocolError, match="too many sessions"):
        queue.check_sessions(20.0)
    assert queue.sessions_in_use(20.0) == {"early", "late"}
    assert queue.sessions_in_use(SESSION_IN_USE_S + 5.0) == {"late"}
    queue.forget_session("late")
    assert queue.sessions_in_use(20.0) == set()


def test_who_waits_as_long_as_told_is_let_in() -> None:
    queue = JobQueue(ServeOptions(turns_per_minute=1))
    queue.count_turn("session", 0.0)
    with pytest.raises(ProtocolError, match="wait 1 s"):
        queue.count_turn("session", 59.7)
    queue.count_turn("session", 60.7)
