"""`device.Device` on a real GPU: cuda-python for memory, streams and graphs; TensorRT-RTX or TensorRT for engines.

**Not run on a GPU yet.** It was written against the libraries' documented interface and holds as little as possible:
no arithmetic, no order of things. `animegamer-rt selftest --device tensorrt` is what shows whether it holds.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BackendError, EngineStaleError
from .device import Array, Facts, Shape, Stream, Tensor, Work
from .identity import RTX, library_for

INSTALL = {RTX: "pip install tensorrt-rtx-cu13 cuda-python", "tensorrt": "pip install tensorrt cuda-python"}


class CudaDevice:
    """One GPU. TensorRT-RTX captures graphs itself; for TensorRT the stream is captured."""

    def __init__(self, runtime: Any, library: Any, ordinal: int, arch: str) -> None:
        self._cuda, self._trt, self._ordinal, self._arch = runtime, library, ordinal, arch
        self.captures = library.__name__ != RTX
        self._held: list[tuple[Any, int]] = []
        self._queueing = threading.RLock()
        self.use()
        self._loading = self.stream()
        self._logger = library.Logger(library.Logger.ERROR)
        self._runtime = library.Runtime(self._logger)

    @classmethod
    def open(cls, ordinal: int = 0) -> CudaDevice:
        """The machine's GPU. Raises BackendError when there is none, or no library for it."""
        try:
            runtime = importlib.import_module("cuda.bindings.runtime")
        except ImportError as error:
            raise BackendError(
                "cuda-python is not installed", found=str(error), do="pip install cuda-python"
            ) from error
        code, count = runtime.cudaGetDeviceCount()
        if int(code) or not count:
            raise BackendError(
                "no NVIDIA GPU that can be used", found=code.name, do="check the driver, or play with onnxruntime"
            )
        _, properties = runtime.cudaGetDeviceProperties(ordinal)
        arch = f"sm{properties.major}{properties.minor}"
        name = library_for(arch)
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            raise BackendError(
                f"{name}, which serves {arch}, is not installed", found=str(error), do=INSTALL[name]
            ) from error
        return cls(runtime, library, ordinal, arch)

    def facts(self) -> Facts:
        properties = _checked(self._cuda.cudaGetDeviceProperties(self._ordinal))
        free, total = _checked(self._cuda.cudaMemGetInfo())
        name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
        return Facts(name, self._arch, total, free, self._trt.__name__, self._trt.__version__)

    def use(self) -> None:
        _checked(self._cuda.cudaSetDevice(self._ordinal))

    def load(self, path: Path, compiled: bytes | None = None) -> CudaEngine:
        return CudaEngine(self._trt, self._runtime, path, self._loading, compiled)

    def stream(self) -> CudaStream:
        return CudaStream(self._cuda, self._queueing)

    def allocate(self, bytes: int) -> int:
        code, address = self._cuda.cudaMalloc(bytes)
        if int(code):
            raise BackendError(
                "not enough GPU memory", found=code.name, expected=f"{bytes / 2**20:.0f} MiB in one piece"
            )
        self._held.append((self._cuda.cudaFree, address))
        return int(address)

    def pinned(self, shape: Shape, dtype: npt.DTypeLike) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        address = _checked(self._cuda.cudaMallocHost(size))
        self._held.append((self._cuda.cudaFreeHost, address))
        memory = (ctypes.c_uint8 * size).from_address(int(address))
        return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)

    def close(self) -> None:
        _checked(self._cuda.cudaDeviceSynchronize())
        for free, address in self._held:
            _checked(free(address))
        self._held.clear()


class CudaStream:
    """`device.Stream`. It is ordered against no other, the default one included.

    queueing: held by whoever queues or captures an execution, so that none falls into another thread's capture: a
    library that captures for itself may forbid all threads to allocate meanwhile. Nobody waits for the GPU inside.
    """

    def __init__(self, runtime: Any, queueing: threading.RLock) -> None:
        self._cuda, self.queueing = runtime, queueing
        self._stream = _checked(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
        self.handle = int(self._stream)

    def copy_in(self, address: int, array: Array) -> None:
        self._copy(address, array.ctypes.data, array.nbytes, self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice)

    def copy(self, target: int, source: int, bytes: int) -> None:
        self._copy(target, source, bytes, self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice)

    def copy_out(self, array: Array, address: int) -> None:
        self._copy(array.ctypes.data, address, array.nbytes, self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost)
        self.synchronize()

    def record(self) -> object:
        event = _checked(self._cuda.cudaEventCreateWithFlags(self._cuda.cudaEventDisableTiming))
        _checked(self._cuda.cudaEventRecord(event, self._stream))
        return event

    def wait(self, mark: object) -> None:
        _checked(self._cuda.cudaEventSynchronize(mark))
        _checked(self._cuda.cudaEventDestroy(mark))

    def capture(self, work: Work) -> object:
        # Thread-local: another thread may be copying or waiting meanwhile.
        mode = self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        with self.queueing:
            _checked(self._cuda.cudaStreamBeginCapture(self._stream, mode))
            try:
                work()
            except BaseException:
                # A stream that is still being captured would take nothing else, ever.
                self._cuda.cudaStreamEndCapture(self._stream)
                raise
            graph = _checked(self._cuda.cudaStreamEndCapture(self._stream))
        executable = _checked(self._cuda.cudaGraphInstantiate(graph, 0))
        _checked(self._cuda.cudaGraphDestroy(graph))
        return executable

    def launch(self, graph: object) -> None:
        _checked(self._cuda.cudaGraphLaunch(graph, self._stream))

    def synchronize(self) -> None:
        _checked(self._cuda.cudaStreamSynchronize(self._stream))

    def _copy(self, target: int, source: int, bytes: int, kind: Any) -> None:
        _checked(self._cuda.cudaMemcpyAsync(target, source, bytes, kind, self._stream))


class CudaEngine:
    """`device.Engine` over a deserialised engine; its weights are on the GPU from the first context on."""

    def __init__(self, trt: Any, runtime: Any, path: Path, loading: CudaStream, compiled: bytes | None) -> None:
        self._trt, self._path, self._loading = trt, path, loading
        plan = path.read_bytes()
        self._engine = runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise EngineStaleError(
                f"{trt.__name__} {trt.__version__} refuses the engine",
                where=path,
                do="run: animegamer-rt export tensorrt for this GPU and library",
            )
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        self.tensors: Mapping[str, Tensor] = {name: self._tensor(name) for name in names}
        self.streamable_bytes = int(self._engine.streamable_weights_size)
        self.weights_bytes = max(len(plan), self.streamable_bytes)
        self._cache: Any = None
        self._compiled = compiled

    def _tensor(self, name: str) -> Tensor:
        trt, engine = self._trt, self._engine
        is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
        item = int(trt.DataType(engine.get_tensor_dtype(name)).itemsize)
        shape = tuple(engine.get_tensor_shape(name))
        if -1 in shape and is_input:
            ends = [
                engine.get_tensor_profile_shape(name, index)[2] for index in range(engine.num_optimization_profiles)
            ]
            shape = tuple(max(lengths) for lengths in zip(*ends, strict=True))
        elif -1 in shape:
            shape = self._largest_output(name)
        return Tensor(shape, item, is_input)

    def _largest_output(self, name: str) -> Shape:
        """An output's shape with every input at its most, over all profiles; contexts that own no memory say it."""
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        shapes = []
        for profile in range(self._engine.num_optimization_profiles):
            context = self._engine.create_execution_context(strategy)
            context.set_optimization_profile_async(profile, self._loading.handle)
            for index in range(self._engine.num_io_tensors):
                other = self._engine.get_tensor_name(index)
                if self._engine.get_tensor_mode(other) == self._trt.TensorIOMode.INPUT:
                    context.set_input_shape(other, self._engine.get_tensor_profile_shape(other, profile)[2])
            shapes.append(tuple(context.get_tensor_shape(name)))
        return tuple(max(lengths) for lengths in zip(*shapes, strict=True))

    def keep_weights(self, bytes_on_gpu: int) -> None:
        if self.streamable_bytes:
            self._engine.weight_streaming_budget_v2 = bytes_on_gpu

    def scratch_bytes(self) -> int:
        return int(self._engine.device_memory_size_v2)

    def context(self, profile: int, stream: Stream, scratch: int, scratch_bytes: int) -> CudaContext:
        assert isinstance(stream, CudaStream)
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if hasattr(self._engine, "create_runtime_config"):
            config = self._engine.create_runtime_config()
            config.set_execution_context_allocation_strategy(strategy)
            config.cuda_graph_strategy = self._trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
            if self._cache is None:
                self._cache = config.create_runtime_cache()
                if self._compiled:
                    # False for another driver or GPU: then everything is compiled anew.
                    self._cache.deserialize(self._compiled)
            config.set_runtime_cache(self._cache)
            context = self._engine.create_execution_context(config)
        else:
            context = self._engine.create_execution_context(strategy)
        if context is None:
            raise BackendError("no context for the engine", where=self._path, do="free GPU memory")
        if profile:
            context.set_optimization_profile_async(profile, stream.handle)
        context.set_device_memory(scratch, scratch_bytes)
        return CudaContext(context, self._path, stream)

    def compiled(self) -> bytes | None:
        serialized = None if self._cache is None else self._cache.serialize()
        return None if serialized is None else bytes(serialized)


class CudaContext:
    """`device.Context`."""

    def __init__(self, context: Any, path: Path, stream: CudaStream) -> None:
        self._context, self._path, self._stream = context, path, stream

    def bind(self, name: str, address: int) -> None:
        self._context.set_tensor_address(name, address)

    def shape(self, name: str, shape: Shape) -> None:
        if not self._context.set_input_shape(name, shape):
            raise BackendError(f"the engine was not built for {name} of this size", where=self._path, found=shape)

    def output_shape(self, name: str) -> Shape:
        return tuple(self._context.get_tensor_shape(name))

    def execute(self) -> None:
        with self._stream.queueing:
            queued = self._context.execute_async_v3(self._stream.handle)
        if not queued:
            raise BackendError("an engine failed to run", where=self._path, do="run: animegamer-rt selftest")


def _checked(answer: tuple[Any, ...]) -> Any:
    """The values of a CUDA call, or its error as ours."""
    code, *values = answer
    if int(code):
        raise BackendError("the GPU refused", found=code.name, do="run: animegamer-rt selftest --device tensorrt")
    return values[0] if len(values) == 1 else tuple(values)
