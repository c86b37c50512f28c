"""The server outlives a machine that cannot start a process, and a worker that cannot be ended."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import fakes
from animegamer_rt.bundle.loader import load
from animegamer_rt.serving.server.local_host import LocalHost, share_out, shortages, usable_gpus
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.workers import BACKOFF_S, MAX_BACKOFF_S, RequiredWorker, WorkerProcess
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import READY, WorkerReady


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WorkerProcess]:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    with zmq.Context() as context, context.socket(zmq.ROUTER) as worker_socket:
        options = ServeOptions(state_dir=tmp_path)
        host = LocalHost(options, bundle, "tcp://127.0.0.1:1")
        yield WorkerProcess(options, RequiredWorker(bundle.fingerprint, STEPS), worker_socket, host)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Starts that were tried; none succeeds."""
    started: list[Any] = []

    def start(*arguments: Any, **named: Any) -> None:
        started.append(arguments)
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


class Stuck:
    """A worker in a system call that does not return: it can be killed, and does not die."""

    made: list[Stuck] = []

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.stdin, self.killed = io.BytesIO(), False
        self.pid = 1000 + len(self.made)
        self.made.append(self)

    def poll(self) -> None:
        """It runs."""

    def kill(self) -> None:
        self.killed = True

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "nobody may wait for it without an end"
        raise subprocess.TimeoutExpired("worker", timeout)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> list[Stuck]:
    """The workers that were started, none of which can be ended."""
    monkeypatch.setattr(subprocess, "Popen", Stuck)
    monkeypatch.setattr(Stuck, "made", [])
    return Stuck.made


def test_a_worker_that_cannot_be_started_is_tried_again_later(process: WorkerProcess, no_memory: list[Any]) -> None:
    reason = process.watch(100.0)
    assert reason is not None and "could not be started: Cannot allocate memory" in reason
    assert (process.state, process.pid, process.degraded) == ("restarting", None, False)
    assert process.watch(100.4) is None and len(no_memory) == 1
    assert process.watch(100.6) is not None and process.watch(104.0) is not None
    assert len(no_memory) == 3 and process.degraded and process.last_error == reason
    for failure in range(1, 1100):
        assert process.watch(104.0 + failure * MAX_BACKOFF_S) is not None, "however often that failed"
    assert process.retry_in_s(104.0 + 1099 * MAX_BACKOFF_S) == MAX_BACKOFF_S
    process.stop()


def test_deaths_that_a_turn_is_to_blame_for_delay_nobody_else(process: WorkerProcess, no_memory: list[Any]) -> None:
    for failure in range(10):
        assert process.watch(100.0 + failure * BACKOFF_S, suspected=True) is not None
    assert len(no_memory) == 10 and not process.degraded


def test_a_worker_that_cannot_be_killed_does_not_block_the_server(process: WorkerProcess, stuck: list[Stuck]) -> None:
    process.watch(0.0)
    reason = process.watch(1000.0)
    assert reason is not None and "sent nothing" in reason
    assert stuck[0].killed and stuck[0].stdin.closed and process.pid is None
    process.watch(1002.0)
    assert process.pid == stuck[1].pid, "another takes its place"
    process.stop()
    assert stuck[1].killed and process.pid is None


def test_cores_and_gpus_are_shared_out_and_shortages_are_said(tmp_path: Path) -> None:
    def cores(workers: int, count: int) -> list[tuple[int, ...]]:
        return [share.cores for share in share_out(workers, "cpu", tuple(range(count)), ())]

    assert cores(2, 5) == [(0, 1), (2, 3, 4)]
    assert [len(share.cores) for share in share_out(2, "torch-cpu", tuple(range(5)), ())] == [2, 2], "as many each"
    assert cores(3, 2) == [(0,), (1,), (0,)]
    assert cores(1, 8) == [()], "a single worker keeps all"
    assert [share.threads for share in share_out(2, "cpu", (), ())][0] is not None, "where no core can be given out"
    assert [share.gpu for share in share_out(3, "torch", (0, 1, 2), ("4", "GPU-7c"))] == ["4", "GPU-7c", "4"]
    assert [share.gpu for share in share_out(2, "cpu", (0, 1), ("0", "1"))] == [None, None]
    for number in (0, 1):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    assert usable_gpus({}, tmp_path) == ("0", "1")
    assert usable_gpus({"CUDA_VISIBLE_DEVICES": "2, 3"}, tmp_path) == ("2", "3")
    assert not list(shortages(2, "cpu", 2, 0)) and not list(shortages(1, "torch", 1, 0))
    assert ["share cores" in said for said in shortages(3, "cpu", 2, 0)] == [True]
    assert ["share GPUs" in said for said in shortages(2, "torch", 2, 1)] == [True]
    assert ["no GPUs were found" in said for said in shortages(2, "torch", 2, 0)] == [True]


STEPS = "0123456789ab"
IDENTITY = "PyTorch on CUDA, denoiser bf16; library: torch 2.9.0; attention: wgmma"


def say_ready(process: WorkerProcess, fingerprint: str, engines: str, steps: str = STEPS) -> None:
    """What a worker's message does, without its socket."""
    ready = WorkerReady(process._secret, 0.0, 1.0, fingerprint, steps, engines)
    process._handle_worker_message(b"peer", Message(READY, ready.to_fields()), 0.0)


def test_a_worker_with_other_engines_plays_no_turn(process: WorkerProcess, tmp_path: Path, stuck: list[Stuck]) -> None:
    """Else a turn that is given to it after the first one died would have frames of both."""
    fingerprint = load(tmp_path / "tiny").fingerprint
    process.watch(0.0)
    say_ready(process, fingerprint, IDENTITY)
    assert process.serving
    process._clean_up(0.1, "it died")
    process.watch(100.0)
    say_ready(process, fingerprint, IDENTITY.replace("wgmma", "torch"))
    assert not process.serving
    reason = process.watch(100.1)
    assert reason is not None
    assert "engines differ from the first worker's; found attention: torch; expected attention: wgmma" in reason
    process.watch(200.0)
    say_ready(process, fingerprint, IDENTITY, "other steps")
    assert not process.serving and "changed while the server was running" in (process.watch(200.1) or "")
    process.watch(300.0)
    say_ready(process, fingerprint, IDENTITY)
    assert process.serving
