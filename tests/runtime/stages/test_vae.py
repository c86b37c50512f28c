"""Frames come in order and in the asked pixel format; a number that is not finite or an empty frame ends the turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import DENOISER, FRAME, LOGITS, SHOT, plant

import fakes
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import UnusableOutputError
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.vae import Vae
from animegamer_rt.state.game import Instruction

LATENT = np.random.default_rng(3).normal(size=(1, 5, 16, 2, 3)).astype(np.float32)


def decode(**options: object) -> np.ndarray:
    return np.stack(list(Vae(fakes.FakeVae()).decode(LATENT, **options)))  # type: ignore[arg-type]


def test_pixel_formats_hold_the_same_picture() -> None:
    rgb, rgba, bgra = decode(), decode(pixel_format="rgba32"), decode(pixel_format="bgra32")
    assert (rgba[..., :3] == rgb).all() and (rgba[..., 3] == 255).all()
    assert (bgra[..., [2, 1, 0]] == rgb).all() and (bgra[..., 3] == 255).all()


def test_flip_turns_the_rows_round() -> None:
    assert (decode(flip=True) == decode()[:, ::-1]).all()


def test_second_chunk_is_decoded_while_the_first_is_shown() -> None:
    started = threading.Event()

    class Watched(fakes.FakeVae):
        def next(self, *arguments: object) -> np.ndarray:
            started.set()
            return super().next(*arguments)  # type: ignore[arg-type]

    frames = iter(Vae(Watched()).decode(LATENT))
    next(frames)
    assert started.wait(5), "the second chunk waits for the first to be shown"
    assert len(list(frames)) == 16


def test_closing_early_waits_for_the_engine_and_the_next_clip_is_whole() -> None:
    vae = Vae(fakes.FakeVae())
    frames = iter(vae.decode(LATENT))
    next(frames)
    frames.close()  # type: ignore[attr-defined]
    decoding = vae.decode(LATENT)
    assert len(list(decoding)) == 17
    assert decoding.seconds > 0


def test_failure_of_the_second_chunk_reaches_the_caller() -> None:
    class Failing(fakes.FakeVae):
        def next(self, *arguments: object) -> np.ndarray:
            raise MemoryError("no memory for this chunk")

    with pytest.raises(MemoryError, match="this chunk"):
        list(Vae(Failing()).decode(LATENT))


NIGHTS = {
    "one pixel off by one": lambda frame: frame.__setitem__((7, 13, 2), 1),
    "one lamp in a corner": lambda frame: frame.__setitem__((-1, -1), 255),
    "a horizon": lambda frame: frame.__setitem__(slice(9, None), 1),
}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("where", "error"),
    [
        (SHOT, r"predictor \(fp16\): the shot cannot be used; found 1 of 1808 are NaN or infinite"),
        (LOGITS, r"predictor \(fp16\): the state's logits cannot be used; found 1 of 11 are NaN"),
        (DENOISER, r"denoiser \(int8\): the latent cannot be used; found \d+ of 480 are NaN or infinite"),
    ],
)
def test_one_number_that_is_not_finite_ends_the_turn(bundle: Bundle, where: str, error: str, value: float) -> None:
    precision = {"predictor": "fp16", "denoiser": "int8"}
    engines = replace(plant(fakes.fake_engines(), where, value=value), precision=precision)
    session = Session.start(bundle, seed=7)
    with pytest.raises(UnusableOutputError, match=error + ".*higher precision.*selftest"):
        list(Pipeline.open(bundle, engines, "exact").run_turn(session, Instruction("Mia waves.")))
    assert (session.turns, session.shots) == (0, {})


@pytest.mark.parametrize("pixel_format", ["rgb24", "bgra32"])
@pytest.mark.parametrize("index", [0, 8, 9, 16])
def test_an_empty_frame_ends_the_turn_before_its_chunk_is_shown(bundle: Bundle, index: int, pixel_format: str) -> None:
    engines = plant(fakes.fake_engines(), FRAME, index=index)
    session, shown = Session.start(bundle, seed=7), []
    with pytest.raises(UnusableOutputError, match=rf"vae \(fp32\): frame {index} is empty; found \[0, 0, 0"):
        pipeline = Pipeline.open(bundle, engines)
        for event in pipeline.run_turn(session, Instruction("Mia waves."), pixel_format=pixel_format):
            shown += [event.index] if isinstance(event, FrameReady) else []
    assert shown == ([] if index < 9 else list(range(9)))
    assert session.turns == 0


@pytest.mark.parametrize("draw", NIGHTS.values(), ids=NIGHTS.keys())
def test_no_picture_is_too_dark(draw: Callable[[np.ndarray], Any]) -> None:
    class Night(fakes.FakeVae):
        def _paint(self, *arguments: Any) -> np.ndarray:
            frames = np.zeros_like(super()._paint(*arguments))
            for frame in frames:
                draw(frame)
            return frames

    assert len(list(Vae(Night()).decode(LATENT))) == 17
