"""Records every call of a worker's engines as a span of time, for a trace of served turns.

Knows the engines' interface; nothing of jobs. Each engine has a lane. What the worker's thread `ahead` does before a
turn has begun (read its history while no job runs, predict it while another turn is denoised) is in a lane of its own.
A span is the time that the host waits: work that an engine only queues shows in the call that waits for it.

Where NVIDIA's package nvtx is installed, every span is an NVTX range too, in a domain of its lane: Nsight Systems then
shows the lanes beside what the GPU does.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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

MAX_SPANS = 20_000
"""Some hundreds of turns. A server may run for weeks; the newest spans are kept."""

log = logging.getLogger("animegamer_rt.serving.worker")


class EngineTracer:
    """Records spans from any thread and writes them to `path`. Raises what `check_trace` does."""

    def __init__(self, path: Path) -> None:
        check_trace(path)
        self._path, self._title = path, ""
        self._range = _nvtx_range()
        self.spans: deque[Span] = deque(maxlen=MAX_SPANS)

    def begin(self, title: str) -> None:
        """Forget the spans so far, which are the warm-up's."""
        self._title = title
        self.spans.clear()

    def write(self) -> None:
        """Write all spans. It is called whenever no job waits, so a server that is killed loses only the last turns.

        A trace that cannot be written is logged; the worker goes on.
        """
        try:
            write_spans(self._path, list(self.spans), self._title)
        except OutputError as error:
            log.error("the trace could not be written: %s", error)

    @contextlib.contextmanager
    def span(self, lane: str, name: str) -> Iterator[None]:
        """Record what runs inside, in the lane `ahead` if that thread runs it."""
        lane = PREFETCH if threading.current_thread().name.startswith(PREFETCH) else lane
        started = time.perf_counter()
        try:
            with self._range(lane, name):
                yield
        finally:
            self.spans.append(Span(lane, name, started, time.perf_counter() - started))

    def wrap(self, engines: Engines) -> Engines:
        """The same engines, with every call recorded."""
        return replace(
            engines,
            predictor=_Predictor(engines.predictor, self),
            denoiser=_Denoiser(engines.denoiser, self),
            vae=_Vae(engines.vae, self),
        )


def _nvtx_range() -> Callable[[str, str], contextlib.AbstractContextManager[object]]:
    """(lane, name) -> an NVTX range, or nothing where nvtx is not installed."""
    try:
        nvtx: Any = importlib.import_module("nvtx")
    except ModuleNotFoundError:
        return lambda lane, name: contextlib.nullcontext()
    return lambda lane, name: nvtx.annotate(name, domain=f"animegamer {lane}")


class _Predictor:
    def __init__(self, part: PredictorEngine, tracer: EngineTracer) -> None:
        self._part, self._tracer = part, tracer

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        # A turn is two rows, one a read-out; a history is one.
        what = "turn" if len(tokens.masks) > 1 else "history"
        with self._tracer.span("predictor", f"{what}: {tokens.ids.shape[1]} tokens"):
            return self._part.prefill(tokens, past)

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        with self._tracer.span("predictor", "choice"):
            return self._part.extend(tokens, cache)


class _Denoiser:
    def __init__(self, part: DenoiserEngine, tracer: EngineTracer) -> None:
        self._part, self._tracer = part, tracer
        self.skippable_blocks = part.skippable_blocks

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> _Denoising:
        with self._tracer.span("denoiser", "begin"):
            return _Denoising(self._part.start(latent, shot, motion_scope), self._tracer)


class _Denoising:
    def __init__(self, denoising: DenoiseRun, tracer: EngineTracer) -> None:
        self._denoising, self._tracer = denoising, tracer

    def step(
        self,
        coefficients: FloatArray,
        timestep: float,
        rows: tuple[int, ...],
        noise: FloatArray,
        blocks: BlockCache | None = None,
    ) -> None:
        with self._tracer.span("denoiser", f"{'pair' if len(rows) > 1 else 'single'} at {timestep:g}"):
            self._denoising.step(coefficients, timestep, rows, noise, blocks)

    def latent(self) -> FloatArray:
        with self._tracer.span("denoiser", "latent"):
            return self._denoising.latent()


class _Vae:
    def __init__(self, part: VaeEngine, tracer: EngineTracer) -> None:
        self._part, self._tracer = part, tracer

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        with self._tracer.span("vae", "first frames"):
            return self._part.first(latent, channel_order, flip)

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        with self._tracer.span("vae", "next frames"):
            return self._part.next(latent, caches, channel_order, flip)
