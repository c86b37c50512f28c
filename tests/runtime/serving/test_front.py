"""One round of the loop: what is served in which order, and what a sweep must leave alone."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import zmq

from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.serving.server.clients import FrameOptions
from animegamer_rt.serving.server.job_queue import JobQueue
from animegamer_rt.serving.server.jobs import Job, Subscriber
from animegamer_rt.serving.server.metrics import Metrics
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.server import Server
from animegamer_rt.serving.server.status import ServerStatus
from animegamer_rt.serving.store import SweepResult


class Round:
    """A front without sockets, worker or store: a message waits at each door, and it ends after one round."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.spared: set[str] = set()
        self.admission = JobQueue(ServeOptions())
        self._waiting = {"turns": [b"id", b"turn"], "control": [b"id", b"cancel"]}

    def run(self) -> None:
        nothing: Any = SimpleNamespace(
            end_all=lambda: None,
            watch_deadlines=lambda now: None,
            start_next=lambda now: None,
            drop_exports=lambda sessions: None,
        )
        doors: Any = SimpleNamespace(
            turns="turns", control="control", address="", port=1, connections=0, receive=self._receive
        )
        doors.wait = lambda milliseconds: {"control", "turns"}
        worker: Any = SimpleNamespace(
            receive=lambda now: [], watch=lambda now: None, serving=False, degraded=False, facts={}
        )
        clients: Any = SimpleNamespace(of=lambda socket, routing: None, retry=lambda: False)
        desk: Any = SimpleNamespace(answer=lambda client, socket, frames: self.answered.append(frames[0].decode()))
        facts: Any = SimpleNamespace(draining=True, state="ready")
        store: Any = SimpleNamespace(sweep=self._sweep)
        pipeline = (doors, store, worker, self.admission, facts, nothing, desk, clients, Metrics())
        assert Server(ServeOptions(drain_s=0), *pipeline).run() == 0

    def _receive(self, socket: str) -> list[bytes]:
        if socket not in self._waiting:
            raise zmq.Again
        return self._waiting.pop(socket)

    def _sweep(self, now: float, in_use: set[str]) -> SweepResult:
        self.spared = in_use
        self.admission.waiting.clear()
        return SweepResult((), (), 0, 0, False)


def test_a_turn_is_taken_before_the_cancel_that_was_sent_after_it() -> None:
    loop = Round()
    loop.run()
    assert loop.answered == ["turn", "cancel"]


def test_a_sweep_spares_the_sessions_of_the_last_hour_and_of_jobs() -> None:
    loop, now, nobody = Round(), time.monotonic(), cast(Any, None)
    loop.admission.use_session("recent", now - 1000)
    loop.admission.use_session("early", now - 4000)
    loop.admission.add(Job("export", "long", Subscriber(nobody, None), FrameOptions(), now, now + 1000))
    loop.run()
    assert loop.spared == {"recent", "long"}


def test_a_client_is_told_when_the_pictures_mean_nothing() -> None:
    pipeline: Any = [SimpleNamespace(degraded=False, warm=True)] * 5
    for device, noise in (("simulated:0.5", True), ("cpu", False)):
        facts = ServerStatus(ServeOptions(engines=EngineConfig(device)), open_bundle("pocket"), *pipeline)
        assert facts.welcome()["bundle"]["random_weights"] is noise
