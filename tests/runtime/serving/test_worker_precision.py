"""A turn whose output cannot be used is played again in a higher precision: the player sees one turn, or one error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import DENOISER, FRAME, SHOT, STAGES, plant
from worker_client import TIMEOUT_S, Game, of_type, pictures, running

import fakes
from animegamer_rt.backends.interface import Engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PLAY_ROLES
from animegamer_rt.errors import BackendError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire import Message
from animegamer_rt.serving.worker.precision_retry import HigherPrecision

TEXT = "Mia waves."


def named(engines: Engines, precision: str) -> Engines:
    return replace(engines, precision=dict.fromkeys(PLAY_ROLES, precision))


@pytest.fixture
def pipeline(bundle: Bundle) -> Callable[..., Pipeline]:
    """A pipeline in `precision` with a fault planted in one stage."""

    def make(precision: str, *fault: str, index: int = 0) -> Pipeline:
        engines = named(fakes.fake_engines(), precision)
        for where in fault:
            engines = plant(engines, where, index=index)
        return Pipeline.open(bundle, engines)

    return make


@pytest.mark.parametrize("where", STAGES)
def test_a_turn_is_played_again_in_a_higher_precision(
    pipeline: Any, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running(pipeline("fp32")) as worker:
        expected = worker.play(Game().job(TEXT))
    opened = []

    def open_pipeline() -> Pipeline:
        opened.append("fp32")
        return pipeline("fp32")  # type: ignore[no-any-return]

    higher = HigherPrecision("--device cpu-fp32", open_pipeline)
    with running(pipeline("int8", where), higher=higher) as worker:
        for _ in range(2):
            found = worker.play(Game().job(TEXT))
            assert [(message.type, message.seq) for message in found] == [(one.type, one.seq) for one in expected]
            assert np.array_equal(pictures(found), pictures(expected))
            result = Game().keep(TEXT, found)
            assert result.engines is not None and "denoiser int8" in result.engines, "the game stays these engines'"
            assert result == replace(Game().keep(TEXT, expected), engines=result.engines)
    assert opened == ["fp32"], "the engines stay open for the next turn"
    assert "(int8): " in caplog.text and "playing the turn again with --device cpu-fp32" in caplog.text


def test_a_clip_never_mixes_two_precisions(pipeline: Any) -> None:
    higher = HigherPrecision("fp32", lambda: pipeline("fp32"))
    with running(pipeline("int8", FRAME, index=12), higher=higher) as worker:
        *sent, failed = worker.play(Game(codec="mp4").job(TEXT))
    assert not of_type(sent, "clip") and failed.fields["code"] == "unusable_output"


@pytest.mark.parametrize("fails", ["there is none", "it fails too", "it cannot be opened"])
def test_a_turn_that_no_precision_can_play_ends_with_an_error_and_the_next_one_plays(
    bundle: Bundle, pipeline: Any, fails: str
) -> None:
    def open_pipeline() -> Pipeline:
        if fails == "it cannot be opened":
            raise BackendError("the GPU's memory is full")
        return pipeline("bf16", DENOISER)  # type: ignore[no-any-return]

    higher = None if fails == "there is none" else HigherPrecision("bf16", open_pipeline)
    broken: Any = plant(named(fakes.fake_engines(), "fp16"), SHOT)
    stage = "denoiser (bf16): the latent" if fails == "it fails too" else "predictor (fp16): the shot"
    with running(Pipeline.open(bundle, broken), higher=higher) as worker:
        *before, failed = worker.play(Game().job(TEXT))
        assert failed.fields["code"] == "unusable_output"
        assert failed.fields["text"].startswith(f"{stage} cannot be used; found ")
        assert "higher precision" in failed.fields["do"]
        assert not of_type(before, "turn_result") and not of_type(before, "frame")
        broken.predictor.where = "nowhere"
        assert worker.play(Game().job(TEXT))[-1].type == "finished"


def test_a_turn_can_be_cancelled_while_the_other_engines_load(pipeline: Any) -> None:
    loading, let_go = threading.Event(), threading.Event()

    def open_pipeline() -> Pipeline:
        loading.set()
        assert let_go.wait(TIMEOUT_S)
        return pipeline("fp32")  # type: ignore[no-any-return]

    with running(pipeline("fp16", SHOT), higher=HigherPrecision("fp32", open_pipeline)) as worker:
        worker.send(Game().job(TEXT))
        assert loading.wait(TIMEOUT_S)
        worker.send(Message("cancel", id="j"))
        assert worker.answers()[-1].fields["code"] == "cancelled"
        let_go.set()
        assert worker.play(Game().job(TEXT))[-1].type == "finished"
