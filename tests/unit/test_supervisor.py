"""The supervisor outlives a machine that cannot start a process just now."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import zmq

import fakes
from animegamer_rt.server.options import ServeOptions
from animegamer_rt.server.supervisor import Supervisor


def test_a_worker_that_cannot_be_started_is_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    started: list[Any] = []

    def no_memory(*arguments: Any, **named: Any) -> None:
        started.append(arguments)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", no_memory)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as door:
        supervisor = Supervisor(ServeOptions(state=tmp_path, backoff_s=1.0), bundle, door, "tcp://127.0.0.1:1")
        reason = supervisor.watch(100.0)
        assert reason is not None and "could not be started: Cannot allocate memory" in reason
        assert (supervisor.state, supervisor.pid, supervisor.degraded) == ("restarting", None, False)
        assert supervisor.watch(100.5) is None and len(started) == 1
        assert supervisor.watch(101.5) is not None and supervisor.watch(104.0) is not None
        assert len(started) == 3 and supervisor.degraded and supervisor.last_error == reason
        supervisor.stop()
