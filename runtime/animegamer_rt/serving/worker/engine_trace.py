"""What the engines of a worker do, on a clock: calls of their parts as spans of lanes, for a trace of turns in a queue.

Knows the parts' contract; nothing of jobs. What is done for a turn before its time has come (its history read while
nothing runs, its prompt while another turn is denoised) is done in the worker's thread `ahead`: a lane of its own.
The spans are the host's waits: a part that only queues its work shows where it waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from animegamer_rt.backends.interface import (
    DenoiserEngine,
    DenoiseRun,
    Engines,
    FloatArray,
    Frames,
    IntArray,
    PredictorEngine,
    Prefill,
    TokenBatch,
    VaeEngine,
)
from animegamer_rt.bundle.denoise_plan import BlockCache
from animegamer_rt.errors import OutputError
from animegamer_rt.profiling.trace import PREFETCH, Span, check_trace, write_spans

MOST_SPANS = 20_000
"""Some hundreds of turns; a server may run for weeks, and the newest are kept."""

log = logging.getLogger("animegamer_rt.serving.worker")


class EngineTracer:
    """Spans noted by any thread, and their trace in `path`. Raises what `check_trace` does."""

    def __init__(self, path: Path) -> None:
        check_trace(path)
        self._path, self._title = path, ""
        self.spans: deque[Span] = deque(maxlen=MOST_SPANS)

    def begin(self, title: str) -> None:
        """Forgets what was noted so far, which is the warm-up."""
        self._title = title
        self.spans.clear()

    def write(self) -> None:
        """Writes all of it anew, so that a server that is killed loses no more than what runs. A trace that cannot be
        written is no reason to stop playing.
        """
        try:
            write_spans(self._path, list(self.spans), self._title)
        except OutputError as error:
            log.error("the trace could not be written: %s", error)

    @contextlib.contextmanager
    def span(self, lane: str, name: str) -> Iterator[None]:
        """Notes what runs inside, in the lane `ahead` if that thread runs it."""
        started = time.perf_counter()
        try:
            yield
        finally:
            lane = PREFETCH if threading.current_thread().name.startswith(PREFETCH) else lane
            self.spans.append(Span(lane, name, started, time.perf_counter() - started))

    def over(self, engines: Engines) -> Engines:
        """The same engines, watched."""
        return replace(
            engines,
            predictor=_Predictor(engines.predictor, self),
            denoiser=_Denoiser(engines.denoiser, self),
            vae=_Vae(engines.vae, self),
        )


class _Predictor:
    def __init__(self, part: PredictorEngine, watch: EngineTracer) -> None:
        self._part, self._watch = part, watch

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        # A turn is two rows, one a read-out; a history is one.
        what = "turn" if len(tokens.masks) > 1 else "history"
        with self._watch.span("predictor", f"{what}: {tokens.ids.shape[1]} tokens"):
            return self._part.prefill(tokens, past)

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        with self._watch.span("predictor", "choice"):
            return self._part.extend(tokens, cache)


class _Denoiser:
    def __init__(self, part: DenoiserEngine, watch: EngineTracer) -> None:
        self._part, self._watch = part, watch
        self.skippable_blocks = part.skippable_blocks

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> _Denoising:
        with self._watch.span("denoiser", "begin"):
            return _Denoising(self._part.start(latent, shot, motion_scope), self._watch)


class _Denoising:
    def __init__(self, denoising: DenoiseRun, watch: EngineTracer) -> None:
        self._denoising, self._watch = denoising, watch

    def step(
        self,
        coefficients: FloatArray,
        timestep: float,
        rows: tuple[int, ...],
        noise: FloatArray,
        blocks: BlockCache | None = None,
    ) -> None:
        with self._watch.span("denoiser", f"{'pair' if len(rows) > 1 else 'single'} at {timestep:g}"):
            self._denoising.step(coefficients, timestep, rows, noise, blocks)

    def latent(self) -> FloatArray:
        with self._watch.span("denoiser", "latent"):
            return self._denoising.latent()


class _Vae:
    def __init__(self, part: VaeEngine, watch: EngineTracer) -> None:
        self._part, self._watch = part, watch

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        with self._watch.span("vae", "first frames"):
            return self._part.first(latent, channel_order, flip)

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        with self._watch.span("vae", "next frames"):
            return self._part.next(latent, caches, channel_order, flip)
