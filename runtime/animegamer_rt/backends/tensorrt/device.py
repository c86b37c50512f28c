"""The one thin interface between this backend and a GPU: memory, streams, graphs, engines.

Everything else in this package is arithmetic over it and is tested on the CPU against a device of the same interface
whose streams are as lazy as real ones. `cuda` implements it on cuda-python and TensorRT; that file alone has **not been
run on a GPU** yet. Work of one stream runs in the order it was queued in; only `wait`, `copy_out` and `synchronize`
wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """The GPU in words and numbers, and the library that will run on it; free_bytes is of the moment."""

    name: str
    arch: str
    free_bytes: int
    library: str
    version: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of an engine: its largest shape over all profiles, and the bytes of one element."""

    shape: Shape
    item_bytes: int
    is_input: bool

    @property
    def bytes(self) -> int:
        """What it needs at most."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.item_bytes


class Context(Protocol):
    """An engine under one of its optimisation profiles, on one stream, with addresses of its own."""

    def bind(self, name: str, address: int) -> None:
        """Where a tensor lies, from the next execution on."""
        ...

    def shape(self, name: str, shape: Shape) -> None:
        """An input's shape, from the next execution on. Raises BackendError outside the profile."""
        ...

    def output_shape(self, name: str) -> Shape:
        """An output's shape under the inputs' shapes."""
        ...

    def execute(self) -> None:
        """Queues one execution. Raises BackendError."""
        ...


class Engine(Protocol):
    """A loaded engine: weights once, however many contexts."""

    tensors: Mapping[str, Tensor]
    weights_bytes: int
    """All weights, were none streamed."""
    streamable_bytes: int
    """The share of them that may stay in host memory (0: built without weight streaming)."""

    def keep_weights(self, bytes_on_gpu: int) -> None:
        """How much of the streamable weights stays on the GPU; before the first context. Raises BackendError."""
        ...

    def scratch_bytes(self) -> int:
        """Memory that an execution needs while it runs, under the weights kept."""
        ...

    def context(self, profile: int, stream: Stream, scratch: int, scratch_bytes: int, steady: bool) -> Context:
        """A context on a stream, and on memory that others of that stream may use between two executions.

        steady: its shapes are few, so kernels compiled and graphs captured for them are used again. Otherwise one set
        of kernels runs every shape. Either way an execution gives the same bytes the first time and the tenth.
        """
        ...

    def compiled(self) -> bytes | None:
        """What was compiled for this GPU until now, for `load` at the next start; None where nothing is."""
        ...


class Stream(Protocol):
    """Work in a row. Nothing orders it against another stream's, but that the host waits for the one before the other.

    One thread at a time uses it.
    """

    def copy_in(self, address: int, array: Array) -> None:
        """Queues host -> device. An array that is not pinned may be changed at once."""
        ...

    def copy(self, target: int, source: int, bytes: int) -> None:
        """Queues device -> device."""
        ...

    def copy_out(self, array: Array, address: int) -> None:
        """Device -> host, after all that was queued; done on return."""
        ...

    def record(self) -> object:
        """A mark after all that is queued now."""
        ...

    def wait(self, mark: object) -> None:
        """Returns once the stream has passed the mark, which serves once."""
        ...

    def capture(self, work: Work) -> object:
        """What the work queues on this stream, as a graph: noted, not run. Raises what the work raises."""
        ...

    def launch(self, graph: object) -> None:
        """Queues a graph."""
        ...

    def synchronize(self) -> None:
        """Returns once nothing is queued."""
        ...


class Device(Protocol):
    """One GPU. Addresses are numbers; 0 is none."""

    captures: bool
    """Whether `Stream.capture` is to be used (TensorRT), or the library captures graphs itself (TensorRT-RTX)."""

    def facts(self) -> GpuInfo: ...

    def use(self) -> None:
        """Makes this the calling thread's GPU."""
        ...

    def load(self, path: Path, compiled: bytes | None = None) -> Engine:
        """Reads an engine; its streamable weights stay in host memory until `keep_weights`.

        compiled: what an earlier start has left; it is ignored where it does not fit. Raises EngineStaleError when the
        library refuses the engine.
        """
        ...

    def stream(self) -> Stream:
        """A new stream."""
        ...

    def allocate(self, bytes: int) -> int:
        """Device memory, at a multiple of 256. Raises BackendError when there is not enough."""
        ...

    def pinned(self, shape: Shape, dtype: npt.DTypeLike) -> Array:
        """Host memory that the GPU reads by itself: what it holds counts when the copy runs, not when it is queued."""
        ...

    def close(self) -> None:
        """Frees all memory; so does letting go of the device and of all that was made with it."""
        ...
