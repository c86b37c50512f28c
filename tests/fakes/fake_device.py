"""A `device.Device` in host memory, whose streams run nothing until the host waits for them.

Engines are the bundle's ONNX files in onnxruntime. Late work gives the same wrong results as on a GPU: after a pinned
array was overwritten too early, a buffer was read before it was written, or a graph was captured with other addresses.
It is an error if queued work of two streams touches the same memory and one of them writes it, and if a thread never
chose its GPU.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from animegamer_rt.backends.tensorrt.device import Array, GpuInfo, Shape, Tensor
from animegamer_rt.backends.tensorrt.engine_id import RTX, engine_graphs, engine_name
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.noise import Noise, load_table

ITEM = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8}
ALIGNMENT = 256
MOST = {"tokens": 1600, "history_tokens": 1356, "read_tokens": 226, "cached_tokens": 1600, "longer": 1624}
MOST |= {"channels": 4, "rows_count": 2}
"""Axis name -> its largest length, as the profiles of the tiny bundle's engines would say."""
SCRATCH_BYTES = {"encoder": 512, "predictor": 3072, "denoiser": 4096, "vae_first": 1024, "vae_next": 1024}
STEADY_SHAPES = 2
"""Pictures of three and of four channels; everything else of a few_shapes part is of one shape."""
Range = tuple[int, int]
"""An address and the one after the last."""


def with_engines(bundle: Bundle, graphs: Sequence[str] = (), sources: str = "", **built_for: str) -> Bundle:
    """The bundle with an engine for sm89 of these graphs, or of all. sources: the hash of other files than its own."""
    (bundle.folder / "engines").mkdir(exist_ok=True)
    engines = dict(bundle.manifest.engines)
    for part in graphs or engine_graphs(bundle):
        name = engine_name(part, "sm89", RTX)
        (bundle.folder / f"engines/{name}.engine").write_bytes(part.encode())
        about = {"library": RTX, "version": "1.7.1.116", "arch": "sm89", **built_for}
        engines[name] = Engine(f"engines/{name}.engine", about, sources or bundle.part_sha256(part))
    return write_manifest(bundle.folder, replace(bundle.manifest, engines=engines))


@dataclass(frozen=True)
class Task:
    """Something queued: what it does and the memory that it touches."""

    run: Callable[[], None]
    reads: Sequence[Range] = ()
    writes: Sequence[Range] = ()

    def must_not_run_beside(self, other: Task) -> bool:
        return any(
            one[0] < two[1] and two[0] < one[1]
            for mine, theirs in ((self.writes, [*other.reads, *other.writes]), (self.reads, other.writes))
            for one in mine
            for two in theirs
        )


class FakeDevice:
    def __init__(
        self,
        most: dict[str, int] = MOST,
        *,
        arch: str = "sm89",
        free: int = 2**33,
        captures: bool = True,
        streamable: int = 0,
        draws: bool = True,
    ) -> None:
        """most: as MOST."""
        self.most, self.arch, self.free_bytes, self.captures = most, arch, free, captures
        self.streamable, self.placed_bytes, self.draws = streamable, 0, draws
        self.blocks: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self.next_address = itertools.count(1)
        self.pinned_arrays: list[Array] = []
        self.streams: list[FakeStream] = []
        self.threads = threading.local()
        self.lock = threading.Lock()
        self.calls: list[str] = []
        self.recalled: dict[str, bytes | None] = {}
        self.closed = False

    def info(self) -> GpuInfo:
        free = self.free_bytes - self.placed_bytes
        return GpuInfo("Fake", self.arch, free, "tensorrt_rtx", "1.7.1.116")

    def use(self) -> None:
        self.threads.used = True

    def load(self, path: Path, compiled: bytes | None = None) -> FakeEngine:
        self.recalled[path.stem] = compiled
        engine = FakeEngine(self, path)
        self.placed_bytes += engine.weights_bytes - engine.streamable_bytes
        return engine

    def stream(self, urgent: bool = False) -> FakeStream:
        self.streams.append(FakeStream(self))
        return self.streams[-1]

    def allocate(self, bytes: int) -> int:
        address = next(self.next_address) << 40
        self.blocks[address] = np.full(bytes, 0xA5, np.uint8)
        return address

    def pinned(self, shape: Shape, dtype: npt.DTypeLike) -> Array:
        self.pinned_arrays.append(np.zeros(shape, dtype))
        return self.pinned_arrays[-1]

    def close(self) -> None:
        self.closed = True
        self.blocks.clear()

    def view(self, address: int, bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        block = self.blocks[address >> 40 << 40]
        start = address & (1 << 40) - 1
        assert start + bytes <= len(block), "outside the memory that was allocated"
        return block[start : start + bytes]

    def write(self, address: int, array: Array) -> None:
        self.view(address, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class FakeStream:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.queue: list[Task] = []
        self.done = 0
        self.noted: list[Task] | None = None

    def copy_in(self, address: int, array: Array) -> None:
        late = any(array is pinned for pinned in self.device.pinned_arrays)
        source = array if late else array.copy()
        self.push("copy_in", Task(lambda: self.device.write(address, source), (), [(address, address + array.nbytes)]))

    def copy(self, target: int, source: int, bytes: int) -> None:
        def run() -> None:
            self.device.write(target, self.device.view(source, bytes).copy())

        self.push("copy", Task(run, [(source, source + bytes)], [(target, target + bytes)]))

    def draw(self, noise: Noise, key: int, table: int, target: int) -> None:
        assert self.device.draws

        def run() -> None:
            assert self.device.view(table, 2**18).tobytes() == load_table().tobytes()
            low, high, turn = (int(word) for word in self.device.view(key, 24).view(np.uint64))
            self.device.write(target, replace(noise, seed=low | high << 64, turn=turn).array())

        size = 4 * int(np.prod(noise.shape))
        self.push("draw", Task(run, [(key, key + 24), (table, table + 2**18)], [(target, target + size)]))

    def copy_out(self, array: Array, address: int) -> None:
        def run() -> None:
            array[...] = self.device.view(address, array.nbytes).view(array.dtype).reshape(array.shape)

        self.push("copy_out", Task(run, [(address, address + array.nbytes)]))
        self.synchronize()

    def record(self) -> object:
        assert self.noted is None
        return self.done + len(self.queue)

    def wait(self, mark: object) -> None:
        """Runs no more than it must: what was queued after the mark stays queued."""
        assert isinstance(mark, int) and self.noted is None, "a stream that is being captured cannot be waited for"
        assert self.used(), "this thread has not chosen its GPU"
        self.device.calls.append("wait")
        while self.done < mark:
            self.queue[0].run()
            with self.device.lock:
                del self.queue[0]
                self.done += 1

    def capture(self, work: Callable[[], None]) -> object:
        self.noted = []
        try:
            work()
            return self.noted
        finally:
            self.noted = None

    def launch(self, graph: object) -> None:
        assert isinstance(graph, list) and graph
        self.device.calls.append("launch")
        for task in graph:
            self.add(task)

    def synchronize(self) -> None:
        self.wait(self.record())

    def used(self) -> bool:
        return getattr(self.device.threads, "used", False)

    def push(self, name: str, task: Task) -> None:
        self.device.calls.append(name)
        if self.noted is None:
            self.add(task)
        else:
            self.noted.append(task)

    def add(self, task: Task) -> None:
        assert self.used(), "this thread has not chosen its GPU"
        with self.device.lock:
            for other in self.device.streams:
                if other is not self:
                    for queued in other.queue:
                        assert not task.must_not_run_beside(queued), "two streams touch memory and nothing orders them"
            self.queue.append(task)


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
        self.kept, self.contexts = 0, 0

    def set_resident_weights(self, bytes_on_gpu: int) -> None:
        assert not self.contexts, "the weights of an engine with contexts stay where they are"
        self.kept = bytes_on_gpu

    def bytes(self, name: str, shape: Shape) -> int:
        return int(np.prod(shape)) * self.tensors[name].item_bytes

    def scratch_bytes(self) -> int:
        return SCRATCH_BYTES.get(self.part, 1024)

    def context(
        self, profile: int, stream: FakeStream, scratch: int, scratch_bytes: int, few_shapes: bool
    ) -> FakeContext:
        self.contexts += 1
        assert scratch_bytes >= self.scratch_bytes() and scratch % ALIGNMENT == 0
        self.device.view(scratch, scratch_bytes)
        return FakeContext(self, profile, stream, (scratch, scratch + scratch_bytes), few_shapes)

    def compiled(self) -> bytes:
        self.device.calls.append(f"compiled {self.part}")
        return f"kernels of {self.part}".encode()


class FakeContext:
    def __init__(self, engine: FakeEngine, profile: int, stream: FakeStream, scratch: Range, few_shapes: bool) -> None:
        self.most_shapes = STEADY_SHAPES if few_shapes else 2**20
        self.seen: set[tuple[tuple[str, Shape], ...]] = set()
        self.engine, self.profile, self.stream, self.scratch = engine, profile, stream, scratch
        self.addresses: dict[str, int] = {}
        self.shapes = {name: tensor.shape for name, tensor in engine.tensors.items() if tensor.is_input}
        self.outputs: dict[str, Shape] = {}

    def bind(self, name: str, address: int) -> None:
        assert name in self.engine.tensors and address % ALIGNMENT == 0
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
        self.seen.add(tuple(sorted(shapes.items())))
        assert len(self.seen) <= self.most_shapes, "a context that was said to be few_shapes has ever other shapes"
        if engine.part == "denoiser":
            assert shapes["rows"] == ((2,), (1,))[self.profile]

        def work() -> None:
            feeds = {}
            for value in engine.session.get_inputs():
                dtype, shape = np.dtype(ITEM[value.type]), shapes[value.name]
                held = engine.device.view(addresses[value.name], engine.bytes(value.name, shape))
                feeds[value.name] = held.copy().view(dtype).reshape(shape)
            names = [value.name for value in engine.session.get_outputs()]
            for name, array in zip(names, engine.session.run(names, feeds), strict=True):
                engine.device.write(addresses[name], array)

        touched: dict[bool, list[Range]] = {True: [], False: [self.scratch]}
        for name, tensor in engine.tensors.items():
            # Of an output the most it can be: too many alarms at worst, none too few.
            size = self.engine.bytes(name, shapes[name]) if tensor.is_input else tensor.bytes
            touched[tensor.is_input].append((addresses[name], addresses[name] + size))
        self.stream.push("execute", Task(work, touched[True], touched[False]))
