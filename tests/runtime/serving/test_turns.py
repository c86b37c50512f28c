"""What the front hands the worker and when, with a worker that does what the test says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.serving.server.clients import FrameOptions
from animegamer_rt.serving.server.job_queue import JobQueue
from animegamer_rt.serving.server.jobs import Job, Subscriber
from animegamer_rt.serving.server.metrics import Metrics
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.scheduler import PREDICT_AGAIN_S, Scheduler
from animegamer_rt.serving.server.worker_process import FAILURES
from animegamer_rt.serving.store import Store, StoreFullError
from animegamer_rt.serving.wire import Message
from animegamer_rt.state.game import CharacterState, GameState

SHOT = bytes(2)


class Worker:
    """In the supervisor's place: notes what it is given and told, in order."""

    def __init__(self) -> None:
        self.serving, self.degraded, self.busy = True, False, False
        self.facts: dict[str, Any] = {}
        self.given: list[str] = []
        self.cancelled: list[str] = []

    def give(self, job: Message, now: float) -> None:
        assert self.serving and job.id is not None
        self.busy = True
        self.given.append(job.id)

    def send(self, message: Message) -> None:
        assert message.type == "cancel" and message.id is not None
        self.cancelled.append(message.id)

    def rest(self, *, more: bool) -> None:
        self.busy = more

    def retry_in_s(self, now: float) -> float:
        return 0.5


class Player:
    """A connection: what it was sent, as types and codes."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def send(self, message: Message, delivery: str | None = None) -> None:
        self.heard.append(message.type)

    def refuse(self, error: Any, *about: object) -> None:
        self.heard.append(error.code)


class Server:
    """The front's jobs, and three sessions that each send a turn."""

    def __init__(self, store: Store, state: Path, **options: Any) -> None:
        self.store, self.worker = store, Worker()
        chosen = ServeOptions(state_dir=state, **options)
        self.admission = JobQueue(chosen)
        self.turns = Scheduler(chosen, store, self.admission, self.worker, Metrics())  # type: ignore[arg-type]

    def turn(self, deadline_at: float = 100.0) -> tuple[Job, Player]:
        session, _ = self.store.open("tiny", "f", 7, 2)
        player = Player()
        listener = Subscriber(player, "request")  # type: ignore[arg-type]
        job = Job(
            "turn", session.id, listener, FrameOptions(), 0.0, deadline_at, turn=1, instruction="Mia waves.", seed=7
        )
        self.turns.admit(job, 0.0)
        return job, player

    def forget_shots(self, session: str, turns: int) -> None:
        """A session of so many turns whose window's shots are gone, as after a rewind."""
        for turn in range(1, turns + 1):
            state = GameState(1, 1, 1, 1)
            self.store.finish_turn(session, turn, f"{turn}", "Mia waves.", state, CharacterState(), {turn: SHOT})
        self.store.rewind(session, turns - 3)

    def say(self, job: Job, kind: str, now: float = 1.0, **fields: Any) -> None:
        seq = fields.pop("seq", None)
        self.turns.heard(Message(kind, fields, parent=job.id, session=job.session, turn=job.turn, seq=seq), now)

    def settle(self, job: Job, now: float = 1.0, social: int = 1) -> None:
        strengths = {"motion_level": 1, "social": social, "entertainment": 1, "stamina": 1}
        character = CharacterState().after(GameState(**strengths))
        fields = {"character": asdict(character), "shots": [job.turn], **strengths}
        message = Message("settled", fields, parent=job.id, session=job.session, turn=job.turn, buffers=(SHOT,))
        self.turns.heard(message, now)

    def finish(self, job: Job, now: float = 1.0) -> None:
        self.settle(job, now)
        self.say(job, "finished", now, seconds={})

    def kept(self, job: Job) -> int:
        return self.store.get(job.session).turns


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Store(tmp_path / "state") as store:
        yield Server(store, tmp_path)


def test_the_worker_has_the_next_job_before_the_running_one_ends(server: Server) -> None:
    (first, _), (second, player), (third, _) = server.turn(), server.turn(), server.turn()
    assert server.worker.given == [first.id, second.id], "one ahead, and not the whole queue"
    assert [server.admission.place(job) for job in (first, second, third)] == [0, 1, 2]
    assert second.started_at is None and player.heard == ["accepted"]
    server.finish(first, now=3.0)
    assert server.kept(first) == 1
    assert server.admission.running is second and second.started_at == 3.0 and server.worker.busy
    assert server.worker.given == [first.id, second.id, third.id]
    server.say(second, "state", seq=1)
    assert player.heard == ["accepted", "state"]
    server.finish(second)
    server.finish(third)
    assert server.admission.idle and not server.worker.busy


def test_who_comes_back_too_late_for_the_events_gets_the_turn_again(server: Server) -> None:
    job, player = server.turn()
    job.events = None  # too many bytes to keep
    late = Player()
    job.attach(Subscriber(late, "again"))  # type: ignore[arg-type]
    server.finish(job)
    again = server.admission.running
    assert again is not None and server.worker.given == [job.id, again.id] and again.id != job.id
    assert (again.kind, again.turn, again.instruction, again.deadline_at) == ("replay", 1, "Mia waves.", 101.0)
    server.finish(again)
    assert player.heard == ["accepted"] and late.heard == ["accepted", "done"]
    assert server.kept(job) == 1 and server.admission.idle


def test_a_job_that_was_handed_over_is_stopped_at_once_and_its_late_words_are_not_heard(server: Server) -> None:
    (first, one), (second, two), (third, three) = server.turn(), server.turn(deadline_at=2.0), server.turn()
    server.turns.watch_deadlines(2.5)
    assert two.heard == ["accepted", "deadline"] and server.worker.cancelled == [second.id]
    server.turns.start_next(2.5)
    assert server.worker.given == [first.id, second.id, third.id]
    server.say(second, "state", seq=1)  # the worker had begun it before it heard
    server.say(second, "failed", code="cancelled", text="the turn was cancelled")
    assert one.heard == ["accepted"] and server.admission.running is first
    server.finish(first)
    assert server.kept(first) == 1 and server.kept(second) == 0 and server.admission.running is third
    assert server.turns.cancel(third.session)
    assert three.heard == ["accepted"], "a running one ends when the worker says so"
    server.say(third, "failed", code="cancelled", text="the turn was cancelled")
    assert three.heard == ["accepted", "cancelled"] and server.admission.idle and not server.worker.busy


def test_both_jobs_of_a_dead_worker_go_to_the_next_and_only_the_running_one_counts_it(server: Server) -> None:
    (first, one), (second, two) = server.turn(), server.turn()
    server.say(first, "state", seq=1)
    server.worker.serving = False
    server.turns.worker_died("killed", 1.0)
    server.turns.start_next(1.0)
    assert one.heard == ["accepted", "state", "restarting"] and two.heard == ["accepted"]
    assert (first.failures, second.failures) == (1, 0)
    server.worker.serving = True
    server.turns.start_next(2.0)
    assert server.worker.given == [first.id, second.id] * 2
    server.say(first, "state", seq=1)
    assert one.heard == ["accepted", "state", "restarting"], "what was sent is not sent twice"
    server.finish(first)
    server.finish(second)
    assert (server.kept(first), server.kept(second)) == (1, 1)


def test_a_job_that_cannot_be_handed_over_lets_the_one_behind_it_by(server: Server) -> None:
    first, _ = server.turn()
    lost, player = server.turn()
    third, _ = server.turn()
    server.turns.worker_died("killed", 1.0)
    lost.turn = 3
    server.turns.start_next(2.0)
    assert player.heard == ["accepted", "no_such_turn"]
    assert server.worker.given[-2:] == [first.id, third.id] and server.admission.follower is third


def test_a_turn_is_kept_before_its_frames_and_done_comes_after_them(server: Server) -> None:
    job, player = server.turn()
    server.settle(job)
    assert server.kept(job) == 1 and player.heard == ["accepted"]
    server.say(job, "frame", seq=1)
    server.say(job, "finished", seconds={})
    assert player.heard == ["accepted", "frame", "done"] and server.kept(job) == 1


@pytest.mark.parametrize("how", ["cancelled", "config", "draining", "worker_failed"])
def test_a_kept_turn_whose_frames_fail_to_come_is_taken_back(server: Server, how: str) -> None:
    job, player = server.turn()
    server.settle(job)
    if how == "draining":
        server.turns.end_all()
    elif how == "worker_failed":
        for _ in range(FAILURES):
            server.turns.worker_died("killed", 1.0)
            server.turns.start_next(1.0)
            server.settle(job)
    else:
        server.say(job, "failed", code=how, text="the frames do not come")
    assert player.heard[-1] == how and server.kept(job) == 0 and server.admission.idle


def test_a_kept_turn_goes_on_after_the_worker_died_and_counts_once(server: Server) -> None:
    job, player = server.turn()
    server.settle(job)
    server.turns.worker_died("killed", 1.0)
    server.turns.start_next(1.0)
    assert server.worker.given == [job.id, job.id] and server.kept(job) == 1
    server.finish(job)
    assert player.heard == ["accepted", "restarting", "done"] and server.kept(job) == 1


def test_a_turn_that_cannot_be_kept_is_stopped_and_its_client_told_why(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*turn: object) -> None:
        raise StoreFullError("no room to keep more")

    monkeypatch.setattr(server.store, "finish_turn", full)
    (job, player), (faster, other) = server.turn(), server.turn()
    server.settle(job)
    assert server.worker.cancelled == [job.id] and player.heard == ["accepted"]
    server.say(job, "failed", code="cancelled", text="the turn was cancelled")
    assert player.heard == ["accepted", "storage"] and server.kept(job) == 0
    server.finish(faster)  # the worker was through before it heard
    assert other.heard == ["accepted", "storage"] and server.admission.idle and not server.worker.busy


def long_game(server: Server, asked_s: float = math.inf) -> Job:
    """A job of turn 8 at the worker, whose shots have to be predicted again from turn 1 on."""
    session, _ = server.store.open("tiny", "f", 7, 2)
    server.forget_shots(session.id, 10)
    listener = Subscriber(Player(), "request")  # type: ignore[arg-type]
    job = Job(
        "turn", session.id, listener, FrameOptions(), 0.0, 100.0, turn=8, instruction="Mia waves.", asked_s=asked_s
    )
    server.turns.admit(job, 0.0)
    return job


def test_a_turn_that_has_shots_to_predict_again_has_the_time_for_it_once(server: Server) -> None:
    job = long_game(server)
    assert job.deadline_at == 100.0 + 7 * PREDICT_AGAIN_S
    server.turns.worker_died("killed", 1.0)
    server.turns.start_next(1.0)
    assert server.worker.given == [job.id, job.id] and job.deadline_at == 100.0 + 7 * PREDICT_AGAIN_S
    server.turns.watch_deadlines(101.0)
    assert job.ending is None


def test_a_client_that_asked_for_less_time_gets_no_more(server: Server) -> None:
    assert long_game(server, asked_s=50.0).deadline_at == 100.0


def test_a_turn_whose_shots_are_there_has_the_usual_time(server: Server) -> None:
    job, _ = server.turn()
    server.finish(job)
    again = Job("replay", job.session, job.listener, FrameOptions(), 0.0, 100.0, turn=1, instruction="Mia waves.")
    server.turns.admit(again, 0.0)
    assert again.deadline_at == 100.0


def test_shots_that_were_predicted_again_stay_though_the_turn_fails(server: Server) -> None:
    job = long_game(server)
    fields = {"shots": [6, 7]}
    shots = Message("shots", fields, parent=job.id, session=job.session, turn=8, buffers=(b"6", b"7"))
    server.turns.heard(shots, 1.0)
    server.say(job, "failed", code="cancelled", text="the turn was cancelled")
    history = server.store.job_history(job.session, 8)
    assert (history.first, dict(history.shots)) == (5, {6: b"6", 7: b"7"}) and server.kept(job) == 7
