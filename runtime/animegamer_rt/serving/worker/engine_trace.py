"""Records every call of a worker's engines as a span, for a trace of served turns.

Each engine has a lane. Work done ahead of a turn (reading its history while no job runs, predicting it while another
turn is denoised) happens in the worker's thread `ahead` and has its own lane. A span is the time the host waits: work
that an engine only queues shows up in the call that waits for it.

If NVIDIA's package nvtx is installed, every span is also an NVTX range in its lane's domain, so that Nsight Systems
shows the lanes next to the GPU's work.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from animegamer_rt.backends.calls import Method, map_calls
from animegamer_rt.backends.interface import Engines, TokenBatch
from animegamer_rt.errors import OutputError
from animegamer_rt.profiling.trace import PREFETCH, Span, check_trace, write_spans

MAX_SPANS = 20_000
"""Some hundreds of turns; the newest spans are kept, as a server may run for weeks."""

log = logging.getLogger("animegamer_rt.serving.worker")


class EngineTracer:
    """Records spans from any thread and writes them to `path`. Raises what `check_trace` does."""

    def __init__(self, path: Path) -> None:
        check_trace(path)
        self._path, self._title = path, ""
        self._range = _nvtx_range()
        self.spans: deque[Span] = deque(maxlen=MAX_SPANS)

    def begin(self, title: str) -> None:
        """Discard the spans so far, which belong to the warm-up."""
        self._title = title
        self.spans.clear()

    def write(self) -> None:
        """Write all spans. Called whenever no job waits, so that a killed server loses only the last turns.

        If the trace cannot be written, that is logged and the worker continues.
        """
        try:
            write_spans(self._path, list(self.spans), self._title)
        except OutputError as error:
            log.error("the trace could not be written: %s", error)

    @contextlib.contextmanager
    def span(self, lane: str, name: str) -> Iterator[None]:
        """Record what runs inside, in the lane `ahead` if it runs in that thread."""
        lane = PREFETCH if threading.current_thread().name.startswith(PREFETCH) else lane
        started = time.perf_counter()
        try:
            with self._range(lane, name):
                yield
        finally:
            self.spans.append(Span(lane, name, started, time.perf_counter() - started))

    def wrap(self, engines: Engines) -> Engines:
        """The same engines, with every call recorded."""

        def recorded(role: str, name: str, method: Method, arguments: tuple[Any, ...]) -> Any:
            with self.span(role, _call_name(name, arguments)):
                return method(*arguments)

        return map_calls(engines, recorded)


def _nvtx_range() -> Callable[[str, str], contextlib.AbstractContextManager[object]]:
    """(lane, name) -> an NVTX range, or nothing where nvtx is not installed."""
    try:
        nvtx: Any = importlib.import_module("nvtx")
    except ModuleNotFoundError:
        return lambda lane, name: contextlib.nullcontext()
    return lambda lane, name: nvtx.annotate(name, domain=f"animegamer {lane}")


def _call_name(name: str, arguments: tuple[Any, ...]) -> str:
    """A readable name of a call."""
    if name == "prefill":  # a turn has two rows, one of them for the state readout; a history has one
        tokens: TokenBatch = arguments[0]
        return f"{'turn' if len(tokens.masks) > 1 else 'history'}: {tokens.ids.shape[1]} tokens"
    if name == "step":
        return f"{'pair' if len(arguments[2]) > 1 else 'single'} at {arguments[1]:g}"
    words = {"extend": "choice", "start": "begin", "first": "first frames", "next": "next frames"}
    return words.get(name, name)
