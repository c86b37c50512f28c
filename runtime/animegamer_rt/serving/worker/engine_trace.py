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
from pathlib import Path
from typing import Any

from animegamer_rt.backends.calls import Method, map_calls
from animegamer_rt.backends.interface import Engines, TokenBatch
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
    """What a call does, in words."""
    if name == "prefill":  # a turn is two rows, one a read-out; a history is one
        tokens: TokenBatch = arguments[0]
        return f"{'turn' if len(tokens.masks) > 1 else 'history'}: {tokens.ids.shape[1]} tokens"
    if name == "step":
        return f"{'pair' if len(arguments[2]) > 1 else 'single'} at {arguments[1]:g}"
    words = {"extend": "choice", "start": "begin", "first": "first frames", "next": "next frames"}
    return words.get(name, name)
