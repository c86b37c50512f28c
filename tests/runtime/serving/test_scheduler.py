"""Jobs from admission to their end, with a worker that does what the test says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scheduled import Connection, Scheduled

from animegamer_rt.errors import StoreError
from animegamer_rt.serving.server.ahead import AheadTurn, AheadTurns
from animegamer_rt.serving.server.instruction_filter import InstructionFilter
from animegamer_rt.serving.server.job_queue import JobQueue
from animegamer_rt.serving.server.jobs import Job, Subscriber
from animegamer_rt.serving.server.metrics import Metrics
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.scheduler import PREDICT_AGAIN_S, Scheduler
from animegamer_rt.serving.server.worker_process import MAX_FAILURES
from animegamer_rt.serving.server.workers import Workers
from animegamer_rt.serving.store import Store
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.wire.worker_messages import FrameOptions, TurnFinished, TurnResult
from animegamer_rt.state.game import CharacterState, GameState

SHOT = bytes(2)


class Worker:
    """In the place of WorkerProcess: notes what it is given and told, in order."""

    def __init__(self) -> None:
        self.serving, self.degraded, self.busy = True, False, False
        self.warmup_s, self.last_error, self.ready_info = 0.0, "killed", None
        self.number, self.failed_at, self.session, self.given_at = 1, 0.0, None, 0.0
        self.given: list[str] = []
        self.cancelled: list[str] = []

    def dispatch(self, job: Message, now: float) -> None:
        assert self.serving and job.id is not None
        self.busy = True
        self.given.append(job.id)

    def send(self, message: Message) -> None:
        assert message.type == "cancel" and message.id is not None
        self.cancelled.append(message.id)

    def job_ended(self, *, has_next: bool) -> None:
        self.busy = has_next

    def retry_in_s(self, now: float) -> float:
        return 0.5


class Player:
    """A connection: what it was sent, as types and codes."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.frame_options = FrameOptions()

    def send(self, message: Message, delivery: str | None = None) -> None:
        self.heard.append(message.type)

    def send_error(self, error: Any, *about: object) -> None:
        self.heard.append(error.code)


class Server:
    """A scheduler with its store and queue, and sessions that each send a turn."""

    def __init__(self, store: Store, state: Path, **options: Any) -> None:
        self.store, self.worker = store, Worker()
        self.of_worker: Any = self.worker
        self.workers = Workers([self.of_worker])
        chosen = ServeOptions(state_dir=state, **options)
        self.queue = JobQueue(chosen)
        ahead = AheadTurns(chosen, store, self.queue, Metrics(), InstructionFilter(), None)
        self.scheduler = Scheduler(chosen, store, self.queue, self.workers, Metrics(), ahead)

    def turn(self, deadline_at: float = 100.0, accepted_at: float = 0.0) -> tuple[Job, Player]:
        session, _ = self.store.open("tiny", "f", 7, 2)
        player = Player()
        subscriber = Subscriber(player, "request")  # type: ignore[arg-type]
        job = Job(
            "turn",
            session.id,
            subscriber,
            FrameOptions(),
            accepted_at,
            deadline_at,
            turn=1,
            instruction="Mia waves.",
            seed=7,
        )
        self.scheduler.admit(job, accepted_at)
        return job, player

    def say(self, job: Job, kind: str, now: float = 1.0, **fields: Any) -> None:
        seq = fields.pop("seq", None)
        message = Message(kind, fields, parent=job.id, session=job.session, turn=job.turn, seq=seq)
        self.scheduler.on_worker_message(self.of_worker, message, now)

    def send_result(self, job: Job, now: float = 1.0, social: int = 1) -> None:
        assert job.turn is not None
        state = GameState(motion_level=1, social=social, entertainment=1, stamina=1)
        result = TurnResult(state, CharacterState().after(state), {job.turn: SHOT})
        about: dict[str, Any] = {"parent": job.id, "session": job.session, "turn": job.turn}
        message = Message(result.TYPE, result.to_fields(), **about, buffers=result.buffers())
        self.scheduler.on_worker_message(self.of_worker, message, now)

    def finish(self, job: Job, now: float = 1.0) -> None:
        self.send_result(job, now)
        self.say(job, "finished", now, seconds={})

    def stored(self, job: Job) -> int:
        return self.store.get(job.session).turns


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Store(tmp_path / "state") as store:
        yield Server(store, tmp_path)


def test_the_worker_has_the_next_job_before_the_running_one_ends(server: Server) -> None:
    (first, _), (second, player), (third, _) = server.turn(), server.turn(), server.turn()
    assert server.worker.given == [first.id, second.id], "one ahead, and not the whole queue"
    assert [server.queue.place(job) for job in (first, second, third)] == [0, 1, 2]
    assert second.started_at is None and player.heard == ["accepted"]
    server.finish(first, now=3.0)
    assert server.stored(first) == 1
    assert server.queue.running == [second] and second.started_at == 3.0 and server.worker.busy
    assert server.worker.given == [first.id, second.id, third.id]
    server.say(second, "state", seq=1)
    assert player.heard == ["accepted", "state"]
    server.finish(second)
    server.finish(third)
    assert server.queue.idle and not server.worker.busy


def test_a_turn_that_comes_while_the_one_before_it_ends_has_waited_no_less_than_nothing(server: Server) -> None:
    (first, _), (second, _) = server.turn(), server.turn(accepted_at=3.004)
    server.finish(first, now=3.0)
    assert server.queue.running == [second] and second.queued_s == 0.0


def test_a_stopped_job_at_the_worker_ends_at_once_and_its_later_messages_are_ignored(server: Server) -> None:
    (first, one), (second, two), (third, three) = server.turn(), server.turn(deadline_at=2.0), server.turn()
    server.scheduler.stop_overdue(2.5)
    assert two.heard == ["accepted", "deadline"] and server.worker.cancelled == [second.id]
    server.scheduler.dispatch(2.5)
    assert server.worker.given == [first.id, second.id, third.id]
    server.say(second, "state", seq=1)  # the worker had begun it before it heard
    server.say(second, "failed", code="cancelled", text="the turn was cancelled")
    assert one.heard == ["accepted"] and server.queue.running == [first]
    server.finish(first)
    assert server.stored(first) == 1 and server.stored(second) == 0 and server.queue.running == [third]
    assert server.scheduler.cancel(third.session)
    assert three.heard == ["accepted"], "a running one ends when the worker says so"
    server.say(third, "failed", code="cancelled", text="the turn was cancelled")
    assert three.heard == ["accepted", "cancelled"] and server.queue.idle and not server.worker.busy


def test_a_job_that_cannot_be_handed_over_lets_the_one_behind_it_by(server: Server) -> None:
    first, _ = server.turn()
    lost, player = server.turn()
    third, _ = server.turn()
    server.scheduler.on_worker_death(server.of_worker, "killed", 1.0)
    lost.turn = 3
    server.scheduler.dispatch(2.0)
    assert player.heard == ["accepted", "no_such_turn"]
    assert server.worker.given[-2:] == [first.id, third.id] and server.queue.next_waiting is third


@pytest.mark.parametrize("how", ["cancelled", "draining", "worker_failed"])
def test_a_stored_turn_whose_frames_fail_to_come_is_removed(server: Server, how: str) -> None:
    job, player = server.turn()
    server.send_result(job)
    if how == "draining":
        server.scheduler.end_all()
    elif how == "worker_failed":
        for _ in range(MAX_FAILURES):
            server.scheduler.on_worker_death(server.of_worker, "killed", 1.0)
            server.scheduler.dispatch(1.0)
            server.send_result(job)
    else:
        server.say(job, "failed", code=how, text="the frames do not come")
    assert player.heard[-1] == how and server.stored(job) == 0 and server.queue.idle


def test_a_stored_turn_is_played_again_after_the_worker_died_and_counts_once(server: Server) -> None:
    job, player = server.turn()
    server.send_result(job)
    server.scheduler.on_worker_death(server.of_worker, "killed", 1.0)
    server.scheduler.dispatch(1.0)
    assert server.worker.given == [job.id, job.id] and server.stored(job) == 0
    server.finish(job)
    assert player.heard == ["accepted", "restarting", "done"] and server.stored(job) == 1


def long_game(server: Server, requested_s: float = math.inf) -> Job:
    """A job of turn 8 at the worker, whose shots have to be predicted again from turn 1 on."""
    session, _ = server.store.open("tiny", "f", 7, 2)
    for turn in range(1, 11):
        state = GameState(1, 1, 1, 1)
        server.store.finish_turn(session.id, turn, f"{turn}", "Mia waves.", state, CharacterState(), {turn: SHOT})
    server.store.rewind(session.id, 7)
    subscriber = Subscriber(Player(), "request")  # type: ignore[arg-type]
    job = Job(
        "turn",
        session.id,
        subscriber,
        FrameOptions(),
        0.0,
        100.0,
        turn=8,
        instruction="Mia waves.",
        requested_s=requested_s,
    )
    server.scheduler.admit(job, 0.0)
    return job


def test_a_turn_that_has_shots_to_predict_again_has_the_time_for_it_once(server: Server) -> None:
    job = long_game(server)
    assert job.deadline_at == 100.0 + 7 * PREDICT_AGAIN_S
    server.scheduler.on_worker_death(server.of_worker, "killed", 1.0)
    server.scheduler.dispatch(1.0)
    assert server.worker.given == [job.id, job.id] and job.deadline_at == 100.0 + 7 * PREDICT_AGAIN_S
    server.scheduler.stop_overdue(101.0)
    assert job.stop_error is None
    assert long_game(server, requested_s=50.0).deadline_at == 100.0, "the client's own deadline is not extended"


def test_shots_that_were_predicted_again_stay_though_the_turn_fails(server: Server) -> None:
    job = long_game(server)
    fields = {"shots": [6, 7]}
    shots = Message("shots", fields, parent=job.id, session=job.session, turn=8, buffers=(b"6", b"7"))
    server.scheduler.on_worker_message(server.of_worker, shots, 1.0)
    server.say(job, "failed", code="cancelled", text="the turn was cancelled")
    history = server.store.turn_context(job.session, 8)
    assert (history.first, dict(history.shots)) == (5, {6: b"6", 7: b"7"}) and server.stored(job) == 7


def test_what_was_understood_is_told_once_though_another_worker_reads_it_again(server: Server) -> None:
    job, player = server.turn()
    server.say(job, "understood")
    server.say(job, "state", seq=1)
    server.scheduler.on_worker_death(server.of_worker, "killed", 1.0)
    server.scheduler.dispatch(2.0)
    server.say(job, "understood")
    server.say(job, "state", seq=1)
    server.finish(job)
    assert player.heard == ["accepted", "understood", "state", "restarting", "done"]


def test_a_turn_played_ahead_is_told_to_stop_as_soon_as_a_real_one_comes(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        server = Server(store, tmp_path, ahead=1)
        first, player = server.turn()
        server.queue.use_session(first.session, 0.0, player)
        server.finish(first)
        server.scheduler.dispatch(1.05)
        assert len(server.worker.given) == 1, "not before a player had time to answer"
        server.scheduler.dispatch(1.5)
        ahead = server.worker.given[-1]
        assert server.worker.given == [first.id, ahead] and server.queue.idle

        second, other = server.turn()
        assert server.worker.cancelled == [ahead] and server.worker.given[-1] == second.id
        server.scheduler.on_worker_message(
            server.of_worker, Message("failed", {"code": "cancelled", "text": ""}, parent=ahead), 2.0
        )
        assert server.worker.busy, "with the real turn"
        server.finish(second, 3.0)
        assert other.heard == ["accepted", "done"] and player.heard == ["accepted", "done"]
        server.scheduler.dispatch(9.0)
        assert not server.worker.busy, "what was stopped is not begun again"


def test_the_worker_rests_between_turns_ahead_for_the_share_asked_for(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        server = Server(store, tmp_path, ahead=1, ahead_share=0.25)
        for _ in range(2):
            job, player = server.turn()
            server.queue.use_session(job.session, 0.0, player)
            server.finish(job)
        server.scheduler.dispatch(2.0)
        finished = Message("finished", {"seconds": {}}, parent=server.worker.given[2])
        server.scheduler.on_worker_message(server.of_worker, finished, 3.0)
        server.scheduler.dispatch(5.9)
        assert len(server.worker.given) == 3 and not server.worker.busy
        server.scheduler.dispatch(6.1)
        assert len(server.worker.given) == 4, "played for 1 s, rested for 3 s"


def test_the_pictures_of_a_ready_turn_wait_for_no_disk(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, _ = server.turn()
    session, _ = server.store.open("tiny", "f", 7, 2)
    player = Player()
    subscriber = Subscriber(player, "request")  # type: ignore[arg-type]
    job = Job("turn", session.id, subscriber, FrameOptions(), 0.0, 100.0, turn=1, instruction="Mia waves.", seed=7)
    state = GameState(motion_level=1, social=1, entertainment=1, stamina=1)
    result = TurnResult(state, CharacterState().after(state), {1: SHOT})
    told = [
        Message("state", {}, seq=1),
        Message(result.TYPE, result.to_fields(), buffers=result.buffers()),
        Message("frame", {}, seq=2),
        Message(TurnFinished.TYPE, {"seconds": {}}),
    ]
    ready = AheadTurn(waiting, b"", 0.0, told)
    heard: list[list[str]] = []
    finish = server.store.finish_turn

    def finish_turn(*given: Any, **more: Any) -> Any:
        heard.append([*player.heard])
        return finish(*given, **more)

    monkeypatch.setattr(server.store, "finish_turn", finish_turn)
    monkeypatch.setattr(AheadTurns, "has", lambda *_: True)
    monkeypatch.setattr(AheadTurns, "take", lambda *_: ready)
    server.scheduler.admit(job, 1.0)
    assert heard == [["accepted", "state", "frame"]]
    assert player.heard == ["accepted", "state", "frame", "done"] and server.stored(job) == 1


def test_a_session_that_cannot_be_read_is_not_played_ahead_and_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = StoreError("disk I/O error")
    for error in (broken, TypeError("a number that is none")):
        with Store(tmp_path / type(error).__name__) as store:
            server, player = Scheduled(store, ahead=1), Connection()
            session, _ = store.open("tiny", "f", 7, 2)
            server.queue.use_session(session.id, 0.0, player)  # type: ignore[arg-type]

            def fail(*_: object, error: Exception = error) -> None:
                raise error

            with monkeypatch.context() as patched:
                patched.setattr("animegamer_rt.serving.server.ahead.guesses", lambda *_: ["Mia waves."])
                patched.setattr("animegamer_rt.serving.server.scheduler.turn_message", fail)
                for now in (1.0, 2.0, 3.0):
                    server.scheduler.dispatch(now)
            assert server.worker.given == []
            server.scheduler.admit(server.job("turn", session.id, player, 1), 4.0)
            assert len(server.worker.given) == 1, "real turns are played"
