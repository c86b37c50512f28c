"""A job's life, driven by all events in all orders beside a model: exactly once, in order, nothing after the end."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from simulated_server import Listener, SimulatedServer, SimulatedWorker
from test_failing_disk import DISKS, STATEMENTS, FailingDisk

from animegamer_rt.serving.server.jobs import Played, Replay, Subscriber, Turn
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.wire.worker_messages import FrameOptions

FRAMES = 3
SHARED_MEMORY = Path("/dev/shm")
"""The disk where there is one: a real one would take minutes."""
RAW, MP4 = FrameOptions(), FrameOptions(codec="mp4")


class Life(RuleBasedStateMachine):
    """Three sessions on two connections. `told`: of each session, the turns of which a client heard `done`."""

    workers = 1

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
        self.clients = [Listener(RAW), Listener(RAW)]
        with Store(self.folder) as store:
            self.sessions = [store.open("tiny", "f", 7, 2)[0].id for _ in range(3)]
        self.told: dict[str, list[str]] = {session: [] for session in self.sessions}
        self.numbers = itertools.count()
        self.now = 0.0
        self.serve()

    def serve(self) -> None:
        self.store = Store(self.folder)
        self.disk = FailingDisk(self.store)
        self.server = SimulatedServer(self.store, self.folder, workers=self.workers)
        self.server.now = self.now
        self.seq: dict[str, int] = {}
        """Job id at the worker -> the last event that this worker sent of it."""
        self.live: list[Played] = []
        self.ended: set[str | None] = set()
        self.last_seq: dict[str | None, int] = {}

    @rule(which=st.integers(0, 2), who=st.integers(0, 1), hasty=st.booleans())
    def send_turn(self, which: int, who: int, hasty: bool) -> None:
        session = self.sessions[which]
        if self.server.core.queue.of_session(session) is not None:
            return
        stored = self.server.storage.as_done(self.store.get(session))
        assert stored.turns == len(self.told[session]), "what the client heard is what the store shows"
        self.admit(Turn, session, self.clients[who], stored.turns + 1, 5.0 if hasty else 1e9)

    def admit(self, kind: type[Turn] | type[Replay], session: str, client: Any, turn: int, deadline_s: float) -> None:
        name = f"{kind.NOUN} {next(self.numbers)}"
        job = kind(
            session=session,
            subscriber=Subscriber(client, name),
            accepted_at=self.server.now,
            deadline_at=self.server.now + deadline_s,
            turn=turn,
            turn_id=name,
            instruction=name,
            seed=7,
            frame_options=client.frame_options,
        )
        self.live.append(job)
        self.server.carry_out(self.server.core.admit(job, self.server.now))
        self.server.tick()

    @rule(which=st.integers(0, 2))
    def replay(self, which: int) -> None:
        session = self.sessions[which]
        if self.told[session] and self.server.core.queue.of_session(session) is None:
            self.admit(Replay, session, self.clients[0], len(self.told[session]), 1e9)

    @rule(which=st.integers(0, 2), form=st.sampled_from([RAW, MP4]), seen=st.integers(-1, 4))
    def come_back(self, which: int, form: FrameOptions, seen: int) -> None:
        """The client of a job has another connection, which may want another form."""
        job = self.server.core.queue.of_session(self.sessions[which])
        if isinstance(job, Played):
            client: Any = Listener(form)
            jobs = list(self.server.core.queue.jobs)
            ears = [one.client for job in jobs for one in (job.subscriber, job.listener)]
            self.clients = [*self.clients[:2], *(one for one in self.clients[2:] if one in ears), client]
            subscriber = Subscriber(client, f"again {next(self.numbers)}", seen)
            self.server.carry_out(self.server.core.subscribe(job, subscriber))

    @rule(who=st.integers(0, 9))
    def vanish(self, who: int) -> None:
        if who < len(self.clients):
            self.server.vanishes(self.clients[who])

    def worker(self, number: int) -> SimulatedWorker:
        """One of them, the one that any number names."""
        return self.server.workers[number % self.workers]

    def next_seq(self, job_id: str) -> int:
        self.seq[job_id] = self.seq.get(job_id, 0) + 1
        return self.seq[job_id]

    @rule(number=st.integers(0, 5), what=st.sampled_from(["event", "settle", "finish", "finish", "fail"]))
    def worker_says(self, number: int, what: str) -> None:
        worker = self.worker(number)
        if not worker.given:
            return
        job_id = str(worker.job.id)
        job = next((job for job in self.server.core.queue.running if job.id == job_id), None)
        if job is None or what == "event":
            self.server.says("frame", worker, seq=self.next_seq(job_id))
        elif what == "settle":
            self.server.result(worker)
        elif what == "fail":
            self.server.says("failed", worker, code="cancelled" if job.stop_error else "config", text="it failed")
        else:
            while self.seq.get(job_id, 0) < FRAMES:
                self.server.says("frame", worker, seq=self.next_seq(job_id))
            self.server.finish(worker)

    @rule(number=st.integers(0, 5), kind=st.sampled_from(list(DISKS)), where=st.sampled_from(list(STATEMENTS)))
    def disk_breaks_once_a_turn_is_stored(self, number: int, kind: str, where: str) -> None:
        self.worker_says(number, "settle")
        self.disk.turns(kind, where)

    @rule(number=st.integers(0, 5), at_once=st.booleans())
    def worker_dies(self, number: int, at_once: bool) -> None:
        """And is started again, at once or later."""
        worker = self.worker(number)
        for job in worker.given:
            self.seq.pop(str(job.id), None)
        self.server.dies(worker, at_once)

    @rule()
    def workers_come_back(self) -> None:
        for worker in self.server.workers:
            worker.serving = True
        self.server.tick()

    @rule(which=st.integers(0, 2))
    def cancel(self, which: int) -> None:
        self.server.carry_out(self.server.core.cancel(self.sessions[which]))
        self.server.tick()

    @rule(seconds=st.sampled_from([1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.server.tick(seconds)

    @rule(kind=st.sampled_from(list(DISKS)), where=st.sampled_from(list(STATEMENTS)))
    def disk_breaks(self, kind: str, where: str) -> None:
        self.disk.turns(kind, where)
        self.server.storage.remove_all()

    @rule()
    def disk_works(self) -> None:
        self.disk.works_again()
        self.server.storage.remove_all()

    @rule(killed=st.booleans())
    def server_ends_and_starts(self, killed: bool) -> None:
        if not killed and self.disk.works:
            self.server.carry_out(self.server.core.end())
        self.now = self.server.now
        self.hear()
        self.store.close()
        self.serve()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    def hear(self) -> None:
        """What the clients heard since the last look: the model of what must be stored."""
        for client in self.clients:
            for message in client.heard:
                if message.type == "done" and message.session is not None and message.turn is not None:
                    told = self.told[message.session]
                    assert message.turn <= len(told) + 1, "turns are done in order"
                    if message.turn == len(told) + 1:
                        told.append("done")
            self.check_order(client)
            client.heard.clear()

    def check_order(self, client: Listener) -> None:
        ended, last = self.ended, self.last_seq
        for message in client.heard:
            assert message.parent not in ended, f"{message.type} after the end of {message.parent}"
            assert message.fields.get("code") not in ("internal", "no_such_turn"), "no turn is in another's way"
            if message.seq is not None and message.type != "done":
                assert message.seq > last.get(message.parent, -1), "no event comes twice, or out of order"
                last[message.parent] = message.seq
            if message.type in ("done", "error"):
                ended.add(message.parent)

    @invariant()
    def client_and_store_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        self.hear()
        for job in self.live:  # who came late hears nothing until the turn, which counts, is rendered again
            if isinstance(job, Turn) and job.over and job.stored and job.late_subscriber is not None:
                assert job.turn == len(self.told[job.session]) + 1
                self.told[job.session].append("late")
        for session in self.sessions:
            shown = self.server.storage.as_done(self.store.get(session))
            assert shown.turns == len(self.told[session])
        waiting = [job for job in self.live if not job.over]
        assert set(self.server.core.queue.jobs) >= set(waiting)
        self.live = waiting
        free = [worker for worker in self.server.workers if worker.serving and not worker.given]
        idle = [job for job in self.server.core.queue.waiting if job.worker is None and not job.suspect]
        assert not (free and idle), "no worker is idle while a job waits"


@pytest.mark.parametrize(("workers", "examples"), [(1, 40), (2, 40), (3, 20)])
def test_a_jobs_life_in_ten_thousand_steps(workers: int, examples: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        type("Life", (Life,), {"workers": workers}),
        settings=settings(
            max_examples=examples,
            phases=[Phase.generate],
            stateful_step_count=100,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
