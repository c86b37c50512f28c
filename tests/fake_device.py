"""A GPU made of host memory, with the interface of `device.Device`: its stream runs nothing until it is waited for.

Engines are the bundle's ONNX files in onnxruntime. What a real stream would do late, this one does late: a pinned array
that is overwritten too early, an execution that reads a buffer before it was written, a graph that was captured with
other addresses all give wrong numbers here too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from animegamer_rt.backends.tensorrt.device import Array, Facts, Shape, Tensor

ITEM = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8}
Work = Callable[[], None]


class FakeDevice:
    def __init__(
        self, most: dict[str, int], *, arch: str = "sm89", free: int = 2**33, captures: bool = True, streamable: int = 0
    ) -> None:
        """most: axis name -> its largest length, as the profiles of the engines would say."""
        self.most, self.arch, self.free_bytes, self.captures = most, arch, free, captures
        self.streamable, self.streamed_scratch = streamable, 0
        self.blocks: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self.next_address = itertools.count(1)
        self.pinned_arrays: list[Array] = []
        self.queue: list[Work] = []
        self.noted: list[Work] | None = None
        self.calls: list[str] = []
        self.recalled: dict[str, bytes | None] = {}
        self.closed = False

    def facts(self) -> Facts:
        return Facts("Fake", self.arch, 2**33, self.free_bytes, "tensorrt_rtx", "1.7.1.116")

    def use(self) -> None:
        self.calls.append("use")

    def load(self, path: Path, compiled: bytes | None = None) -> FakeEngine:
        self.recalled[path.stem] = compiled
        return FakeEngine(self, path)

    def allocate(self, bytes: int) -> int:
        address = next(self.next_address) << 40
        self.blocks[address] = np.full(bytes, 0xA5, np.uint8)
        return address

    def pinned(self, shape: Shape, dtype: npt.DTypeLike) -> Array:
        self.pinned_arrays.append(np.zeros(shape, dtype))
        return self.pinned_arrays[-1]

    def copy_in(self, address: int, array: Array) -> None:
        late = any(array is pinned for pinned in self.pinned_arrays)
        source = array if late else array.copy()
        self.push("copy_in", lambda: self.write(address, source))

    def copy(self, target: int, source: int, bytes: int) -> None:
        self.push("copy", lambda: self.write(target, self.view(source, bytes).copy()))

    def copy_out(self, array: Array, address: int) -> None:
        self.synchronize()
        array[...] = self.view(address, array.nbytes).view(array.dtype).reshape(array.shape)

    def record(self) -> object:
        assert self.noted is None
        return len(self.queue)

    def wait(self, mark: object) -> None:
        self.calls.append("wait")
        self.synchronize()

    def begin_capture(self) -> None:
        self.noted = []

    def end_capture(self) -> object:
        noted, self.noted = self.noted, None
        assert noted
        return noted

    def launch(self, graph: object) -> None:
        assert isinstance(graph, list)
        self.calls.append("launch")
        self.queue += graph

    def synchronize(self) -> None:
        assert self.noted is None, "a stream that is being captured cannot be waited for"
        queued, self.queue = self.queue, []
        for work in queued:
            work()

    def close(self) -> None:
        self.closed = True
        self.blocks.clear()

    def push(self, name: str, work: Work) -> None:
        self.calls.append(name)
        (self.queue if self.noted is None else self.noted).append(work)

    def view(self, address: int, bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        block = self.blocks[address >> 40 << 40]
        start = address & (1 << 40) - 1
        assert start + bytes <= len(block), "outside the memory that was allocated"
        return block[start : start + bytes]

    def write(self, address: int, array: Array) -> None:
        self.view(address, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class FakeEngine:
    def __init__(self, device: FakeDevice, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        onnx = path.parent.parent / f"{path.stem.rsplit('-', 1)[0]}.onnx"
        self.session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
        self.device, self.part = device, onnx.stem
        self.tensors = {
            value.name: Tensor(
                tuple(n if isinstance(n, int) else device.most[n] for n in value.shape),
                np.dtype(ITEM[value.type]).itemsize,
                is_input,
            )
            for values, is_input in ((self.session.get_inputs(), True), (self.session.get_outputs(), False))
            for value in values
        }
        self.weights_bytes, self.streamable_bytes = 2**20 + device.streamable, device.streamable
        self.kept = self.streamable_bytes

    def keep_weights(self, bytes_on_gpu: int) -> None:
        self.kept = bytes_on_gpu

    def scratch_bytes(self) -> int:
        return 4096 + (self.device.streamed_scratch if self.kept < self.streamable_bytes else 0)

    def context(self, profile: int, scratch: int, scratch_bytes: int) -> FakeContext:
        assert scratch_bytes >= self.scratch_bytes()
        return FakeContext(self, profile)

    def compiled(self) -> bytes:
        self.device.calls.append(f"compiled {self.part}")
        return f"kernels of {self.part}".encode()


class FakeContext:
    def __init__(self, engine: FakeEngine, profile: int) -> None:
        self.engine, self.profile = engine, profile
        self.addresses: dict[str, int] = {}
        self.shapes = {name: tensor.shape for name, tensor in engine.tensors.items() if tensor.is_input}
        self.outputs: dict[str, Shape] = {}

    def bind(self, name: str, address: int) -> None:
        assert name in self.engine.tensors
        self.addresses[name] = address

    def shape(self, name: str, shape: Shape) -> None:
        assert all(n <= most for n, most in zip(shape, self.engine.tensors[name].shape, strict=True))
        self.shapes[name] = shape

    def output_shape(self, name: str) -> Shape:
        """By running the part on zeros: what the library infers, this has to see."""
        feeds = {}
        for value in self.engine.session.get_inputs():
            feeds[value.name] = np.zeros(self.shapes[value.name], ITEM[value.type])
        found: Array = self.engine.session.run([name], feeds)[0]
        return found.shape

    def execute(self) -> None:
        shapes, addresses, engine = dict(self.shapes), dict(self.addresses), self.engine
        assert set(addresses) == set(engine.tensors), "a tensor has no address"
        if engine.part == "denoiser":
            assert shapes["rows"] == ((2,), (1,))[self.profile]

        def work() -> None:
            feeds = {}
            for value in engine.session.get_inputs():
                dtype, shape = np.dtype(ITEM[value.type]), shapes[value.name]
                held = engine.device.view(addresses[value.name], int(np.prod(shape)) * dtype.itemsize)
                feeds[value.name] = held.copy().view(dtype).reshape(shape)
            names = [value.name for value in engine.session.get_outputs()]
            for name, array in zip(names, engine.session.run(names, feeds), strict=True):
                engine.device.write(addresses[name], array)

        self.engine.device.push("execute", work)
