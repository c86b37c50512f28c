"""The interface between this backend and a GPU: memory, streams, graphs and engines.

`cuda` implements it with cuda-python and TensorRT; **no GPU has run that file yet**. All other modules use this
interface only and are tested on the CPU against a device whose streams run as late as real ones. Work of one stream
runs in the order it was queued; only `wait`, `copy_out` and `synchronize` wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from animegamer_rt.noise import Noise

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """The GPU, its free memory at this moment, and the library that runs on it."""

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
        """Bytes at the largest shape."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.item_bytes


class Context(Protocol):
    """An engine under one optimisation profile, on one stream, with its own tensor addresses."""

    def bind(self, name: str, address: int) -> None:
        """Sets a tensor's address from the next execution on. Raises BackendError for an unknown tensor."""
        ...

    def shape(self, name: str, shape: Shape) -> None:
        """Sets an input's shape from the next execution on. Raises BackendError outside the profile."""
        ...

    def output_shape(self, name: str) -> Shape:
        """An output's shape for the current input shapes."""
        ...

    def execute(self) -> None:
        """Queues one execution. Raises BackendError."""
        ...


class Engine(Protocol):
    """A loaded engine; its contexts share the weights."""

    tensors: Mapping[str, Tensor]
    weights_bytes: int
    """Bytes of all weights, streamable ones included."""
    streamable_bytes: int
    """Bytes of the weights that may stay in host memory; 0 for an engine built without weight streaming."""

    def set_resident_weights(self, bytes_on_gpu: int) -> None:
        """Sets how many bytes of the streamable weights stay on the GPU, before the first context is made.

        Raises BackendError where the library does not take the limit.
        """
        ...

    def scratch_bytes(self) -> int:
        """Bytes that an execution uses while it runs, for the current resident weights."""
        ...

    def context(self, profile: int, stream: Stream, scratch: int, scratch_bytes: int, few_shapes: bool) -> Context:
        """A new context. scratch: address of memory that other contexts of the stream may use between executions.

        few_shapes: compile kernels and capture graphs for each shape; otherwise one set of kernels runs every shape.
        Either way an execution gives the same bytes however often a shape was seen.
        """
        ...

    def compiled(self) -> bytes | None:
        """The kernels compiled for this GPU so far, for `load` at the next start; None where there are none."""
        ...


class Stream(Protocol):
    """A queue of work for the GPU. Streams are ordered against each other only by waits of the host.

    One thread at a time uses a stream.
    """

    def copy_in(self, address: int, array: Array) -> None:
        """Queues a copy from host to device. The caller may change an array that is not pinned at once."""
        ...

    def copy(self, target: int, source: int, bytes: int) -> None:
        """Queues a copy on the device."""
        ...

    def draw(self, noise: Noise, key: int, table: int, target: int) -> None:
        """Queues noise to be drawn at an address, where the device `draws`. key, table: addresses of `Noise.key` and of
        the noise's table.
        """
        ...

    def copy_out(self, array: Array, address: int) -> None:
        """Copies from device to host after all queued work; done on return."""
        ...

    def record(self) -> object:
        """A mark behind all work that is queued now."""
        ...

    def wait(self, mark: object) -> None:
        """Waits until the stream has passed the mark. A mark can be waited for once."""
        ...

    def capture(self, work: Work) -> object:
        """Captures what the work queues on this stream as a graph, without running it. Raises what the work raises."""
        ...

    def launch(self, graph: object) -> None:
        """Queues a graph."""
        ...

    def synchronize(self) -> None:
        """Waits until all queued work is done."""
        ...


class Device(Protocol):
    """One GPU. An address is an integer."""

    draws: bool
    """Whether streams can `draw`: the kernels' library is there."""
    captures: bool
    """Whether to use `Stream.capture` (TensorRT). TensorRT-RTX captures graphs itself."""

    def info(self) -> GpuInfo:
        """The GPU and its library."""
        ...

    def use(self) -> None:
        """Makes this the calling thread's current GPU."""
        ...

    def load(self, path: Path, compiled: bytes | None = None) -> Engine:
        """Reads an engine; its streamable weights stay in host memory until `set_resident_weights`.

        compiled: kernels of an earlier start, ignored where they do not fit. Raises EngineStaleError where the library
        refuses the engine.
        """
        ...

    def stream(self, urgent: bool = False) -> Stream:
        """A new stream. urgent: the GPU starts its work before that of other streams."""
        ...

    def allocate(self, bytes: int) -> int:
        """The address of new device memory, a multiple of 256. Raises BackendError where there is not enough."""
        ...

    def pinned(self, shape: Shape, dtype: npt.DTypeLike) -> Array:
        """Pinned host memory. The GPU reads it when the copy runs, not when it is queued."""
        ...

    def close(self) -> None:
        """Frees all memory. Dropping the last reference to the device and its objects does so too."""
        ...
