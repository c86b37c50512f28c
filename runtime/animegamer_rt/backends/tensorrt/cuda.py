"""`device.Device` on a real GPU: cuda-python for memory, streams and graphs; TensorRT-RTX or TensorRT for engines.

**Not run on a GPU yet.** It was written against the libraries' documented interface and holds as little as possible:
no arithmetic, no order of parts. `animegamer-rt selftest --device tensorrt` is what shows whether it holds.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BackendError, DeviceLostError, EngineStaleError
from .device import Array, GpuInfo, Shape, Stream, Tensor, Work
from .engine_id import RTX, library_for

UTILS = "cuda.bindings.utils"
CUDA_PYTHON = "'cuda-python>=13'"
"""From here on it has UTILS, and a call that waits lets other threads of Python run meanwhile."""
INSTALL = {RTX: f"pip install tensorrt-rtx-cu13 {CUDA_PYTHON}", "tensorrt": f"pip install tensorrt {CUDA_PYTHON}"}

LOST = frozenset(
    f"cudaError{name}"
    for name in (
        "ECCUncorrectable",
        "NvlinkUncorrectable",
        "IllegalAddress",
        "LaunchTimeout",
        "ContextIsDestroyed",
        "Assert",
        "HardwareStackError",
        "IllegalInstruction",
        "MisalignedAddress",
        "InvalidAddressSpace",
        "InvalidPc",
        "LaunchFailure",
        "Unknown",
    )
)
"""After these "the process must be terminated and relaunched" (CUDA runtime API, cudaError)."""


class CudaDevice:
    """One GPU. TensorRT-RTX captures graphs itself; for TensorRT the stream is captured."""

    def __init__(self, runtime: Any, library: Any, ordinal: int, arch: str) -> None:
        self._cuda, self._trt, self._ordinal, self._arch = runtime, library, ordinal, arch
        self.captures = library.__name__ != RTX
        self._held: list[tuple[Any, Any]] = []
        self._queueing = threading.RLock()
        self._pinned: set[int] = set()
        self.use()
        self._release = weakref.finalize(self, _release, runtime, ordinal, self._held)
        # At the end of the process the driver frees everything, and may be gone already.
        self._release.atexit = False
        self._loading = self.stream()
        self._logger = library.Logger(library.Logger.ERROR)
        self._runtime = library.Runtime(self._logger)

    @classmethod
    def open(cls, ordinal: int = 0) -> CudaDevice:
        """The machine's GPU. Raises BackendError when there is none, or no library for it."""
        try:
            runtime = importlib.import_module("cuda.bindings.runtime")
            importlib.import_module(UTILS)
        except ImportError as error:
            raise BackendError(
                "cuda-python is not installed, or too old", found=str(error), do=f"pip install {CUDA_PYTHON}"
            ) from error
        code, count = runtime.cudaGetDeviceCount()
        if int(code) or not count:
            raise BackendError(
                "no NVIDIA GPU that can be used", found=code.name, do="check the driver, or play with onnxruntime"
            )
        properties = _checked(runtime.cudaGetDeviceProperties(ordinal))
        arch = f"sm{properties.major}{properties.minor}"
        name = library_for(arch)
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            raise BackendError(
                f"{name}, which serves {arch}, is not installed", found=str(error), do=INSTALL[name]
            ) from error
        return cls(runtime, library, ordinal, arch)

    def facts(self) -> GpuInfo:
        properties = _checked(self._cuda.cudaGetDeviceProperties(self._ordinal))
        free, _ = _checked(self._cuda.cudaMemGetInfo())
        name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
        return GpuInfo(name, self._arch, free, self._trt.__name__, self._trt.__version__)

    def use(self) -> None:
        _checked(self._cuda.cudaSetDevice(self._ordinal))

    def load(self, path: Path, compiled: bytes | None = None) -> CudaEngine:
        return CudaEngine(self, self._trt, self._runtime, path, self._loading, compiled)

    def stream(self) -> CudaStream:
        return CudaStream(self._cuda, self._queueing, self._pinned, self._held)

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
        self._pinned.add(int(address))
        memory = (ctypes.c_uint8 * size).from_address(int(address))
        return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)

    def close(self) -> None:
        self._release()


class CudaStream:
    """`device.Stream`. It is ordered against no other, the default one included.

    queueing: held by whoever queues or captures an execution, so that none falls into another thread's capture: a
    library that captures for itself may forbid all threads to allocate meanwhile. Nobody waits for the GPU inside.
    """

    def __init__(self, runtime: Any, queueing: threading.RLock, pinned: set[int], held: list[tuple[Any, Any]]) -> None:
        self._cuda, self.queueing, self._pinned, self._held = runtime, queueing, pinned, held
        self._stream = _checked(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
        held.append((runtime.cudaStreamDestroy, self._stream))
        self.handle = int(importlib.import_module(UTILS).get_cuda_native_handle(self._stream))

    def copy_in(self, address: int, array: Array) -> None:
        self._copy(address, array.ctypes.data, array.nbytes, self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice)
        if array.ctypes.data not in self._pinned:
            # CUDA says of pageable memory only that it may wait, and a GPU that can read it need not.
            self.synchronize()

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
        self._held.append((self._cuda.cudaGraphExecDestroy, executable))
        _checked(self._cuda.cudaGraphDestroy(graph))
        return executable

    def launch(self, graph: object) -> None:
        _checked(self._cuda.cudaGraphLaunch(graph, self._stream))

    def synchronize(self) -> None:
        _checked(self._cuda.cudaStreamSynchronize(self._stream))

    def _copy(self, target: int, source: int, bytes: int, kind: Any) -> None:
        _checked(self._cuda.cudaMemcpyAsync(target, source, bytes, kind, self._stream))


class CudaEngine:
    """`device.Engine` over a deserialised engine; its weights are on the GPU from the first context on.

    It holds its device, so that what the library still uses of it is freed last.
    """

    def __init__(
        self, device: CudaDevice, trt: Any, runtime: Any, path: Path, loading: CudaStream, compiled: bytes | None
    ) -> None:
        self._device, self._trt, self._path, self._loading = device, trt, path, loading
        plan = path.read_bytes()
        self._engine = runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise EngineStaleError(
                f"{trt.__name__} {trt.__version__} refuses the engine",
                where=path,
                do="run: animegamer-rt export tensorrt for this GPU and library",
            )
        self.streamable_bytes = int(self._engine.streamable_weights_size)
        # Else the contexts that tell the shapes below would bring all weights to the GPU, whether they fit or not.
        self.keep_weights(0)
        self._cache: Any = None
        self._compiled = compiled
        self.tensors: Mapping[str, Tensor] = self._tensors()
        self.weights_bytes = max(len(plan), self.streamable_bytes)

    def _tensors(self) -> dict[str, Tensor]:
        trt, engine = self._trt, self._engine
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        inputs = {name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT}
        shapes = self._largest({name: tuple(engine.get_tensor_shape(name)) for name in names}, inputs)
        items = {name: int(trt.DataType(engine.get_tensor_dtype(name)).itemsize) for name in names}
        return {name: Tensor(shapes[name], items[name], name in inputs) for name in names}

    def _largest(self, shapes: Mapping[str, Shape], inputs: set[str]) -> Mapping[str, Shape]:
        """The shapes with every input at its most, over all profiles: a context says what is not told by the engine."""
        dynamic = [name for name, shape in shapes.items() if -1 in shape]
        largest = dict(shapes)
        # A context may compile kernels, so there is one a profile and no more.
        for profile in range(self._engine.num_optimization_profiles if dynamic else 0):
            context = self._made(profile, self._loading, steady=False)
            for name in inputs.intersection(dynamic):
                context.set_input_shape(name, self._engine.get_tensor_profile_shape(name, profile)[2])
            for name in dynamic:
                found = tuple(context.get_tensor_shape(name))
                largest[name] = tuple(max(lengths) for lengths in zip(largest[name], found, strict=True))
        return largest

    def keep_weights(self, bytes_on_gpu: int) -> None:
        if not self.streamable_bytes:
            return
        self._engine.weight_streaming_budget_v2 = bytes_on_gpu
        found = int(self._engine.weight_streaming_budget_v2)
        if found > bytes_on_gpu:
            # The library's own answer is dropped by its Python module.
            raise BackendError(
                "an engine keeps more of its weights on the GPU than it was told",
                where=self._path,
                found=f"{found} bytes",
                expected=f"at most {bytes_on_gpu} bytes",
            )

    def scratch_bytes(self) -> int:
        return int(self._engine.device_memory_size_v2)

    def context(self, profile: int, stream: Stream, scratch: int, scratch_bytes: int, steady: bool) -> CudaContext:
        assert isinstance(stream, CudaStream)
        context = self._made(profile, stream, steady)
        context.set_device_memory(scratch, scratch_bytes)
        return CudaContext(self, context, self._path, stream)

    def _made(self, profile: int, stream: CudaStream, steady: bool) -> Any:
        """A context of the library's under this profile, without scratch."""
        # TensorRT has configurations too, without what is set in RTX's.
        strategy: Any = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        rtx = self._trt.__name__ == RTX
        context = self._engine.create_execution_context(self._configured(strategy, steady) if rtx else strategy)
        if context is None:
            raise BackendError("no context for the engine", where=self._path, do="free GPU memory")
        if profile and not context.set_optimization_profile_async(profile, stream.handle):
            raise BackendError(f"the engine has no profile {profile}", where=self._path)
        return context

    def _configured(self, strategy: Any, steady: bool) -> Any:
        """How RTX is to compile and capture, with what was compiled before."""
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        # The library's own choice compiles in the background and changes kernels, and with them the last bits of an
        # answer, when that is done: the same turn would not give the same bytes again.
        kernels, graphs = self._trt.DynamicShapesKernelSpecializationStrategy, self._trt.CudaGraphStrategy
        config.dynamic_shapes_kernel_specialization_strategy = kernels.EAGER if steady else kernels.NONE
        config.cuda_graph_strategy = graphs.WHOLE_GRAPH_CAPTURE if steady else graphs.DISABLED
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._compiled:
                # False for another driver or GPU: then everything is compiled anew.
                self._cache.deserialize(self._compiled)
        config.set_runtime_cache(self._cache)
        return config

    def compiled(self) -> bytes | None:
        serialized = None if self._cache is None else self._cache.serialize()
        return None if serialized is None else bytes(serialized)


class CudaContext:
    """`device.Context`."""

    def __init__(self, engine: CudaEngine, context: Any, path: Path, stream: CudaStream) -> None:
        self._engine, self._context, self._path, self._stream = engine, context, path, stream

    def bind(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise BackendError(f"the engine takes no address for {name}", where=self._path)

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


def _release(runtime: Any, ordinal: int, held: list[tuple[Any, Any]]) -> None:
    """Gives back what a device holds, the newest first; errors have nobody left to be told to."""
    runtime.cudaSetDevice(ordinal)
    runtime.cudaDeviceSynchronize()
    while held:
        free, handle = held.pop()
        free(handle)


def _checked(answer: tuple[Any, ...]) -> Any:
    """The values of a CUDA call, or its error as ours."""
    code, *values = answer
    if code.name in LOST:
        raise DeviceLostError("the GPU is lost to this process", found=code.name, do="start the program again")
    if int(code):
        raise BackendError("the GPU refused", found=code.name, do="run: animegamer-rt selftest --device tensorrt")
    return values[0] if len(values) == 1 else tuple(values)
