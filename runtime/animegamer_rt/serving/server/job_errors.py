"""The errors that a job ends with.

Knows what the client is told; nothing of when.
"""

from __future__ import annotations

import logging

from animegamer_rt.errors import AnimeGamerError, ProtocolError
from animegamer_rt.serving.wire.worker_messages import JobFailed

from .jobs import Job
from .workers import Workers

log = logging.getLogger(__name__)


def degraded(workers: Workers) -> ProtocolError:
    """The error of a turn while no worker can be started."""
    return ProtocolError(
        "the worker cannot be started",
        code="degraded",
        found=workers.last_error,
        do="try again later; the server goes on trying, and the operator finds the reason in worker.log",
    )


def stopped(job: Job, code: str) -> ProtocolError:
    """The error of a job that was stopped: cancelled, deadline or draining."""
    longer = ", with a longer deadline_s if you gave one" if job.kind in ("turn", "replay") else ""
    noun = {"export": "export", "start": "start from a picture"}.get(job.kind, "turn")
    what, do = {
        "cancelled": (f"the {noun} was cancelled", None),
        "deadline": (f"the {noun} did not finish in time", f"send it again{longer}"),
        "draining": ("the server is stopping", "connect again later; the session is kept"),
    }[code]
    return ProtocolError(what, code=code, do=do)


def fault() -> ProtocolError:
    """The error of a job that the server could not go on with."""
    return ProtocolError("a fault of the server", code="internal", do="the operator finds it in the log")


def worker_error(job: Job, failure: JobFailed) -> AnimeGamerError:
    """The error of a job that the worker gave up."""
    if failure.code == "cancelled":
        return job.stop_error or stopped(job, "cancelled")
    log.error("the worker failed a job: %s: %s", failure.code, failure.text)
    return ProtocolError(failure.text, code=failure.code, do=failure.do)
