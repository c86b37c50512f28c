"""A turn whose output cannot be used ends with an error that says what helps, and the worker plays on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import FRAME, SHOT, STAGES, plant
from worker_client import Game, of_type, running

import fakes
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PLAY_ROLES
from animegamer_rt.pipeline import Pipeline


def broken(where: str) -> Any:
    """Engines in fp16 with a fault in one stage."""
    engines = replace(fakes.fake_engines(), precision=dict.fromkeys(PLAY_ROLES, "fp16"))
    return plant(engines, where, index=12 if where == FRAME else 0)


@pytest.mark.parametrize("where", STAGES)
def test_a_turn_with_unusable_output_ends_with_an_error_and_no_clip(bundle: Bundle, where: str) -> None:
    with running(Pipeline.open(bundle, broken(where))) as worker:
        *sent, failed = worker.play(Game(codec="mp4").job("Mia waves."))
        assert failed.fields["code"] == "unusable_output" and not of_type(sent, "clip")
        assert "(fp16): " in failed.fields["text"] and "--precision bf16 or fp32" in failed.fields["do"]


def test_the_next_turn_plays(bundle: Bundle) -> None:
    engines = broken(SHOT)
    with running(Pipeline.open(bundle, engines)) as worker:
        assert worker.play(Game().job("Mia waves."))[-1].type == "failed"
        engines.predictor.where = "nowhere"
        assert worker.play(Game().job("Mia waves."))[-1].type == "finished"
