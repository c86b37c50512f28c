"""Engines of a fixed cost: whole valid turns that depend on all that a turn depends on."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fakes
from animegamer_rt.backends import simulated
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction

TEXTS = ["Mia waves.", "Mia runs.", "Tobo runs.", "Tobo flies."]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny")


@pytest.fixture(scope="module")
def pipeline(bundle: Bundle) -> Pipeline:
    return Pipeline.open(bundle, simulated.load(bundle, EngineConfig("simulated:0")))


def frames(pipeline: Pipeline, session: Session, text: str, **options: object) -> np.ndarray:
    events = pipeline.run_turn(session, Instruction(text), **options)  # type: ignore[arg-type]
    return np.stack([event.frame for event in events if isinstance(event, FrameReady)])


def last(pipeline: Pipeline, texts: list[str], seed: int = 7) -> np.ndarray:
    session = Session.start(pipeline.bundle, seed)
    return [frames(pipeline, session, text) for text in texts][-1]


def test_a_turn_has_frames_of_the_bundles_geometry_no_two_alike(pipeline: Pipeline) -> None:
    clip = last(pipeline, TEXTS[:1])
    assert (clip.shape, clip.dtype) == ((17, 16, 24, 3), np.uint8)
    assert len({frame.tobytes() for frame in clip}) == 17
    assert clip.std() > 5


def test_seed_instruction_and_every_turn_of_the_window_show_in_the_frames(pipeline: Pipeline) -> None:
    clips = [last(pipeline, TEXTS), last(pipeline, TEXTS, seed=8)]
    for number in range(1, 4):
        clips.append(last(pipeline, [*TEXTS[:number], "Mia sleeps.", *TEXTS[number + 1 :]]))
    assert len({clip.tobytes() for clip in clips}) == len(clips)


def test_a_turn_of_the_default_plan_takes_the_seconds_it_was_given(bundle: Bundle) -> None:
    pipeline = Pipeline.open(bundle, simulated.load(bundle, EngineConfig("simulated:0.3")))
    started = time.perf_counter()
    last(pipeline, TEXTS[:1])
    # A busy machine may only make it longer.
    assert time.perf_counter() - started > 0.29
