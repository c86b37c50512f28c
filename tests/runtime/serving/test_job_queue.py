"""The queue and the sessions of an hour are bounded as the options say."""

from __future__ import annotations

from typing import Any

import pytest

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.server.job_queue import SESSION_IN_USE_S, JobQueue
from animegamer_rt.serving.server.jobs import Job, Subscriber
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.wire.worker_messages import FrameOptions


def job(session: str) -> Job:
    nobody: Any = None
    return Job("turn", session, Subscriber(nobody, None), FrameOptions(), 0.0, 100.0)


def admitted(queue: JobQueue, tries: int) -> int:
    """How many of so many jobs are queued."""
    for number in range(tries):
        try:
            queue.check_free_space()
        except ProtocolError as error:
            assert error.code == "busy"
            return number
        queue.add(job(f"s{number}"))
    return tries


@pytest.mark.parametrize("runs", [True, False])
def test_the_queue_is_bounded_whether_a_job_runs_or_the_worker_is_away(runs: bool) -> None:
    queue = JobQueue(ServeOptions(queue=2))
    if runs:
        queue.add(job("runs"))
        assert queue.start_next() is not None
    assert admitted(queue, 10) == (2 if runs else 3), "without a worker the first is the one that will run"


def test_a_session_is_in_use_for_an_hour() -> None:
    queue = JobQueue(ServeOptions(sessions=2))
    queue.use_session("early", 0.0)
    queue.use_session("late", 10.0)
    with pytest.raises(ProtocolError, match="too many sessions"):
        queue.check_sessions(20.0)
    assert queue.sessions_in_use(20.0) == {"early", "late"}
    assert queue.sessions_in_use(SESSION_IN_USE_S + 5.0) == {"late"}
    queue.forget_session("late")
    assert queue.sessions_in_use(20.0) == set()
