"""Makes turn 0 of a game that starts from a picture: decodes the client's bytes and encodes the picture.

The bytes may be anything: size and format are checked first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import EncoderEngine, TowerEngines
from animegamer_rt.errors import ProtocolError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import GameStarted, StartJob
from animegamer_rt.stages.image_start import encode_image_start, read_image_start

from .replies import ReplyBuilder

MAX_MEGAPIXELS = 16
"""Of clients' pictures: enough for a phone's photo; decoding takes half a gigabyte."""
LOOK_S = 0.2
"""Interval between calls of `heartbeat` while the towers load, which takes a minute at full size."""


@dataclass(frozen=True, slots=True)
class PictureStart:
    """Starts games from pictures. open_towers: loads the towers, which are freed after each start."""

    encoder: EncoderEngine
    open_towers: Callable[[], TowerEngines]


def start_game(
    pipeline: Pipeline, message: Message, start: PictureStart | None, heartbeat: Callable[[], None]
) -> Generator[Message, None, None]:
    """Yields `finished`, with turn 0. heartbeat: called while the towers load; it may raise to stop.

    Raises ProtocolError `no_encoder`, PictureError, InstructionError, or BackendError if an engine fails.
    """
    if start is None:
        what, do = "this server's engines cannot start a game from a picture", "open without a picture"
        raise ProtocolError(what, code="no_encoder", expected="an encoder", do=do)
    job = StartJob.from_message(message)
    picture = read_image_start(pipeline.bundle, job.history_turns, job.picture, job.motion, MAX_MEGAPIXELS)
    heartbeat()
    loader = ThreadPoolExecutor(1, "towers")
    loading: Future[TowerEngines] = loader.submit(start.open_towers)
    loader.shutdown(wait=False)
    while not wait([loading], LOOK_S).done:
        heartbeat()
    turn, scene = encode_image_start(pipeline.bundle, picture, loading.result(), start.encoder, pipeline.reader)
    description = "" if scene is None or pipeline.reader is None else pipeline.reader.describe(scene)
    shot = np.ascontiguousarray(turn.shot, "<f2").tobytes()
    yield ReplyBuilder(message).to_server(GameStarted(turn.text, shot, scene, description))
