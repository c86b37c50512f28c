"""Plays a turn again in the next higher precision if a stage produced unusable numbers or frames.

The caller sees the events of one turn: events already yielded are not repeated, so the state that a player saw stays
true. Once a frame was yielded there is no retry: a clip never mixes two precisions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from animegamer_rt.errors import BackendError, UnusableOutputError
from animegamer_rt.events import Done, Event, FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.predictor import Prediction
from animegamer_rt.stages.prompt import HistoryTurn
from animegamer_rt.state.game import Scene
from animegamer_rt.state.instruction import Instruction

LOOK_S = 0.2
"""Interval between calls of `heartbeat` while the other engines load."""

log = logging.getLogger("animegamer_rt.serving.worker")


class HigherPrecision:
    """The pipeline of the next higher precision, opened when a turn first needs it, and kept open.

    name: as options spell it, for the log. open_pipeline: loads the engines; raises BackendError.
    """

    def __init__(self, name: str, open_pipeline: Callable[[], Pipeline]) -> None:
        self.name = name
        self._open_pipeline = open_pipeline
        self._pipeline: Pipeline | None = None

    def pipeline(self, heartbeat: Callable[[], None]) -> Pipeline:
        """The pipeline; heartbeat: called repeatedly while it is opened, and may raise to stop waiting."""
        if self._pipeline is None:
            loader = ThreadPoolExecutor(1, "higher precision")
            opened = loader.submit(self._open_pipeline)
            loader.shutdown(wait=False)
            while not wait([opened], LOOK_S).done:
                heartbeat()
            self._pipeline = opened.result()
        return self._pipeline


@dataclass(frozen=True, slots=True)
class PrecisionRetry:
    """Runs `pipeline`, and again in `higher` (None: there is none) if its output is unusable.

    heartbeat: called while the engines of `higher` load; it may raise to stop.
    """

    pipeline: Pipeline
    higher: HigherPrecision | None
    heartbeat: Callable[[], None]

    def predict(self, history: Sequence[HistoryTurn], instruction: Instruction) -> Prediction:
        """As `Predictor.predict`."""
        try:
            return self.pipeline.predictor.predict(history, instruction)
        except UnusableOutputError as error:
            return self._open_higher(error).predictor.predict(history, instruction)

    def run_turn(
        self,
        session: Session,
        instruction: Instruction,
        *,
        prediction: Prediction | None = None,
        shown: Scene | None = None,
        pixel_format: str = "rgb24",
        flip: bool = False,
    ) -> Iterator[Event]:
        """As `Pipeline.run_turn`. A retry keeps a prediction that was yielded, and yields only what follows it."""
        started, seen, drawn = time.perf_counter(), -1, False
        given: dict[str, Any] = {"shown": shown, "pixel_format": pixel_format, "flip": flip}
        try:
            for event in self.pipeline.run_turn(session, instruction, prediction=prediction, **given):
                seen, drawn = event.sequence, isinstance(event, FrameReady)
                if isinstance(event, StatePredicted):
                    seconds = time.perf_counter() - started
                    prediction = prediction or Prediction(event.shot, event.game_state, event.history_turns, seconds)
                yield event
            return
        except UnusableOutputError as error:
            if drawn:
                raise
            higher = self._open_higher(error)
        for event in higher.run_turn(session, instruction, prediction=prediction, **given):
            if isinstance(event, Done):
                event = replace(event, seconds=replace(event.seconds, total=time.perf_counter() - started))
            if event.sequence > seen:
                yield event

    def _open_higher(self, error: UnusableOutputError) -> Pipeline:
        if self.higher is None:
            raise error
        log.warning("%s; playing the turn again with %s", error.text, self.higher.name)
        try:
            return self.higher.pipeline(self.heartbeat)
        except BackendError as reason:
            log.error("%s could not be opened: %s", self.higher.name, reason)
            raise error from reason
