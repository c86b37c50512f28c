"""Frames come out in order, in the asked pixel format, the second chunk decoded beside the showing of the first."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fakes
from animegamer_rt.stages.vae import Vae

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
