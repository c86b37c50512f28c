"""What the worker does before a turn's time has come, and that nobody can tell from the turn."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import zmq
from worker_client import TIMEOUT_S, Game, WorkerClient, content, running

import fakes
from animegamer_rt.backends.interface import Prefill, TokenBatch
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire.codec import Message


class Predictor(fakes.FakePredictor):
    """Notes in which thread each prompt was read; can be told to fail ahead of a turn, or at the prompt of a number."""

    def __init__(self, fails_ahead: bool = False) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.read_ahead, self.fails_ahead = threading.Event(), fails_ahead
        self.fails_at = 0
        self.changed = threading.Condition()

    def reads(self, count: int) -> bool:
        """Whether so many prompts have been read, now or soon."""
        with self.changed:
            return self.changed.wait_for(lambda: len(self.threads) >= count, TIMEOUT_S)

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        name = threading.current_thread().name
        with self.changed:
            self.threads.append(name)
            self.changed.notify()
        if len(self.threads) == self.fails_at:
            raise MemoryError("not now")
        if name.startswith("ahead"):
            self.read_ahead.set()
            if self.fails_ahead:
                raise MemoryError("not now")
        return super().prefill(tokens, past)


class Play(WorkerClient):
    """A worker in a thread of this process, and two of its engines."""

    def __init__(self, socket: zmq.Socket[bytes], predictor: Predictor, denoiser: fakes.HeldDenoiser) -> None:
        super().__init__(socket)
        self.predictor, self.denoiser = predictor, denoiser


@contextlib.contextmanager
def playing(bundle: Bundle, *jobs: Message, concurrent_prediction: bool, fails_ahead: bool = False) -> Iterator[Play]:
    predictor, denoiser = Predictor(fails_ahead), fakes.HeldDenoiser(2, TIMEOUT_S)
    engines = replace(fakes.fake_engines(predictor, denoiser), concurrent_prediction=concurrent_prediction)
    with running(Pipeline.open(bundle, engines), *jobs) as client:
        try:
            yield Play(client.socket, predictor, denoiser)
        finally:
            denoiser.let_go.set()


def job(session: str, text: str = "Mia waves.") -> Message:
    """The first turn of a session."""
    return Game(session=session).job(text, id=f"job of {session}")


JOBS = job("a"), job("b", "Tobo runs.")


@pytest.fixture
def expected(bundle: Bundle) -> list[Any]:
    with playing(bundle, concurrent_prediction=False) as play:
        play.denoiser.let_go.set()
        play.send(job("b", "Tobo runs."))
        return content(play.answers())


@pytest.mark.parametrize(
    ("concurrent", "fails", "threads"),
    [(True, False, ["ahead_0"]), (False, False, ["worker"]), (True, True, ["ahead_0", "worker"])],
    ids=["while one is denoised", "in its turn where engines do not overlap", "again in its turn if that failed"],
)
def test_a_waiting_turn_is_predicted_ahead(
    bundle: Bundle, expected: list[Any], concurrent: bool, fails: bool, threads: list[str]
) -> None:
    with playing(bundle, *JOBS, concurrent_prediction=concurrent, fails_ahead=fails) as play:
        assert play.denoiser.reached.wait(TIMEOUT_S)
        assert not concurrent or play.predictor.read_ahead.wait(TIMEOUT_S)
        assert len(play.denoiser.steps) == 2, "the running turn is still in its last step"
        play.denoiser.let_go.set()
        assert {message.session for message in play.answers()} == {"a"}
        assert content(play.answers()) == expected
        assert play.predictor.threads == ["worker", *threads]


def test_a_cancelled_turn_that_was_predicted_ahead_is_not_played(bundle: Bundle) -> None:
    with playing(bundle, *JOBS, concurrent_prediction=True) as play:
        assert play.predictor.read_ahead.wait(TIMEOUT_S) and play.denoiser.reached.wait(TIMEOUT_S)
        play.send(Message("cancel", id="job of b"), job("c"))
        play.denoiser.let_go.set()
        assert play.answers()[-1].type == "finished"
        (failed,) = play.answers()
        assert (failed.session, failed.fields["code"]) == ("b", "cancelled")
        assert {message.session for message in play.answers()} == {"c"}


@pytest.mark.parametrize("fails", [False, True])
def test_the_history_of_a_player_alone_is_read_when_idle(bundle: Bundle, fails: bool) -> None:
    with playing(bundle, concurrent_prediction=False) as play:
        play.denoiser.let_go.set()
        play.predictor.fails_at = 4 if fails else 0
        game = Game(session="a")
        game.turn(play, "Mia waves.")
        assert play.predictor.reads(2), "the first turn and its history"
        game.turn(play, "Tobo runs.")
        assert play.predictor.reads(4), "the second turn and the longer history"
        third = game.job("Mia sleeps.")
        found = content(game.turn(play, "Mia sleeps."))
        assert play.predictor.reads(7 if fails else 6), "the third, after its history only if that had failed"
    with playing(bundle, concurrent_prediction=False) as fresh:
        fresh.denoiser.let_go.set()
        fresh.send(third)
        assert content(fresh.answers()) == found


def test_no_history_is_read_ahead_while_players_take_turns(bundle: Bundle) -> None:
    with playing(bundle, concurrent_prediction=False) as play:
        play.denoiser.let_go.set()
        games = Game(session="a"), Game(session="b")
        for text in ("Mia waves.", "Tobo runs."):
            for game in games:
                game.turn(play, text)
        assert len(play.predictor.threads) == 6, "a turn each, then a history and a turn each"
