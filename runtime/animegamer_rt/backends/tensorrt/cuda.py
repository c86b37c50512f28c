"""Implements `device.Device` on a GPU: cuda-python for memory, streams and graphs, TensorRT(-RTX) for engines.

**No GPU has run it yet.** It is written against the libraries' documentation and only translates calls; buffers and
order of execution are in `engines`. `animegamer-rt selftest --device tensorrt` checks it on a GPU.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_kernels import Library, open_library
from animegamer_kernels.denoiser import NoiseArguments
from animegamer_kernels.library import find_library
from animegamer_rt.errors import BackendError
from animegamer_rt.noise import Noise
from animegamer_rt.profiling.libraries import CUDA_PYTHON, INSTALL_TENSORRT

from ..cuda_errors import as_backend_error, lost, opening_error
from .device import Array, GpuInfo, Shape, Stream, Tensor, Work
from .engine_id import RTX, library_for
from .error_log import error_log, unloadable

UTILS = "cuda.bindings.utils"

FATAL_ERRORS = frozenset(
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
        "DevicesUnavailable",
        "NoDevice",
        "DeviceUninitialized",
    )
)
"""After these "the process must be terminated and relaunched" (CUDA runtime API, cudaError), or the GPU has left."""
NO_DEVICE = 100
"""cudaErrorNoDevice."""
OLDEST = (7, 5)
"""The oldest compute capability that TensorRT 10 and TensorRT-RTX support."""


class CudaDevice:
    """Implements device.Device. kernels: our kernels, which draw noise; None where they are not built for this GPU."""

    def __init__(self, runtime: Any, library: Any, ordinal: int, arch: str, kernels: Library | None = None) -> None:
        self._cuda, self._trt, self._ordinal, self._arch, self._kernels = runtime, library, ordinal, arch, kernels
        self.draws = kernels is not None
        self.captures = library.__name__ != RTX
        self._allocations: list[tuple[Any, Any]] = []
        self._queueing = threading.RLock()
        self._pinned: set[int] = set()
        self.use()
        self._release = weakref.finalize(self, _release, runtime, ordinal, self._allocations)
        # At exit the driver frees everything, and may have been unloaded already.
        self._release.atexit = False
        self._loading = self.stream()
        self._logger = error_log(library)
        self._runtime = library.Runtime(self._logger)

    @classmethod
    def open(cls, ordinal: int = 0) -> CudaDevice:
        """Opens a GPU by number. Raises BackendError where there is none, or no TensorRT library for it."""
        try:
            runtime = importlib.import_module("cuda.bindings.runtime")
            importlib.import_module(UTILS)
        except ImportError as error:
            raise BackendError(
                "cuda-python is not installed, or too old", found=str(error), do=f"pip install {CUDA_PYTHON}"
            ) from error
        code, count = runtime.cudaGetDeviceCount()
        if int(code) or not count:
            raise opening_error(int(code) or NO_DEVICE, code.name)
        code, properties = runtime.cudaGetDeviceProperties(ordinal)
        if int(code):
            raise opening_error(int(code), code.name)
        arch = f"sm{properties.major}{properties.minor}"
        if (properties.major, properties.minor) < OLDEST:
            raise BackendError(
                "TensorRT does not run on this GPU",
                found=arch,
                expected="sm{}{} or later".format(*OLDEST),
                do="use --device cuda, or --device cpu",
            )
        name = library_for(arch)
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            raise BackendError(
                f"{name}, which serves {arch}, is not installed", found=str(error), do=INSTALL_TENSORRT[name]
            ) from error
        return cls(runtime, library, ordinal, arch, _open_kernels())

    def info(self) -> GpuInfo:
        properties = _check(self._cuda.cudaGetDeviceProperties(self._ordinal))
        free, _ = _check(self._cuda.cudaMemGetInfo())
        name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
        return GpuInfo(name, self._arch, free, self._trt.__name__, self._trt.__version__)

    def use(self) -> None:
        _check(self._cuda.cudaSetDevice(self._ordinal))

    def load(self, path: Path, compiled: bytes | None = None) -> CudaEngine:
        return CudaEngine(self, self._trt, self._runtime, path, self._loading, compiled, self._logger)

    def stream(self, urgent: bool = False) -> CudaStream:
        return CudaStream(self._cuda, self._queueing, self._pinned, self._allocations, urgent, self._kernels)

    def allocate(self, bytes: int) -> int:
        code, address = self._cuda.cudaMalloc(bytes)
        if int(code):
            raise BackendError(
                "not enough GPU memory", found=code.name, expected=f"{bytes / 2**20:.0f} MiB in one piece"
            )
        self._allocations.append((self._cuda.cudaFree, address))
        return int(address)

    def pinned(self, shape: Shape, dtype: npt.DTypeLike) -> Array:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        address = _check(self._cuda.cudaMallocHost(size))
        self._allocations.append((self._cuda.cudaFreeHost, address))
        self._pinned.add(int(address))
        memory = (ctypes.c_uint8 * size).from_address(int(address))
        return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)

    def close(self) -> None:
        self._release()


class CudaStream:
    """Implements device.Stream. It is not ordered against any other stream, the default one included.

    queueing: the lock that is held while an execution is queued or captured, so that no thread queues one during
    another's capture: a library's own capture may forbid allocations in all threads. No holder waits for the GPU.
    """

    def __init__(
        self,
        runtime: Any,
        queueing: threading.RLock,
        pinned: set[int],
        allocations: list[tuple[Any, Any]],
        urgent: bool,
        kernels: Library | None,
    ) -> None:
        self._cuda, self.queueing, self._pinned, self._allocations = runtime, queueing, pinned, allocations
        self._kernels = kernels
        least, greatest = _check(runtime.cudaDeviceGetStreamPriorityRange())
        priority = greatest if urgent else least
        self._stream = _check(runtime.cudaStreamCreateWithPriority(runtime.cudaStreamNonBlocking, priority))
        allocations.append((runtime.cudaStreamDestroy, self._stream))
        self.handle = int(importlib.import_module(UTILS).get_cuda_native_handle(self._stream))

    def copy_in(self, address: int, array: Array) -> None:
        self._copy(address, array.ctypes.data, array.nbytes, self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice)
        if array.ctypes.data not in self._pinned:
            # CUDA may return before it has read pageable memory.
            self.synchronize()

    def copy(self, target: int, source: int, bytes: int) -> None:
        self._copy(target, source, bytes, self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice)

    def draw(self, noise: Noise, key: int, table: int, target: int) -> None:
        assert self._kernels is not None, "this device does not draw"
        count, draws = math.prod(noise.shape), len(noise.weights)
        weights = np.ascontiguousarray(noise.weights, np.float32)
        arguments = NoiseArguments(0, draws, count, noise.first, key, table, weights.ctypes.data, target)
        with as_backend_error():
            self._kernels.run("noise", arguments, self.handle)

    def copy_out(self, array: Array, address: int) -> None:
        self._copy(array.ctypes.data, address, array.nbytes, self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost)
        self.synchronize()

    def record(self) -> object:
        event = _check(self._cuda.cudaEventCreateWithFlags(self._cuda.cudaEventDisableTiming))
        _check(self._cuda.cudaEventRecord(event, self._stream))
        return event

    def wait(self, mark: object) -> None:
        _check(self._cuda.cudaEventSynchronize(mark))
        _check(self._cuda.cudaEventDestroy(mark))

    def capture(self, work: Work) -> object:
        # Thread-local, because another thread may copy or wait during the capture.
        mode = self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        with self.queueing:
            _check(self._cuda.cudaStreamBeginCapture(self._stream, mode))
            try:
                work()
            except BaseException:
                # A stream whose capture is not ended accepts no other work.
                self._cuda.cudaStreamEndCapture(self._stream)
                raise
            graph = _check(self._cuda.cudaStreamEndCapture(self._stream))
        executable = _check(self._cuda.cudaGraphInstantiate(graph, 0))
        self._allocations.append((self._cuda.cudaGraphExecDestroy, executable))
        _check(self._cuda.cudaGraphDestroy(graph))
        return executable

    def launch(self, graph: object) -> None:
        _check(self._cuda.cudaGraphLaunch(graph, self._stream))

    def synchronize(self) -> None:
        _check(self._cuda.cudaStreamSynchronize(self._stream))

    def check_device(self) -> None:
        """Raises DeviceLostError where the GPU is lost: TensorRT says only that an execution failed."""
        code = self._cuda.cudaGetLastError()[0]
        if code.name in FATAL_ERRORS:
            raise lost(code.name)

    def _copy(self, target: int, source: int, bytes: int, kind: Any) -> None:
        _check(self._cuda.cudaMemcpyAsync(target, source, bytes, kind, self._stream))


class CudaEngine:
    """Implements device.Engine over a deserialised engine; its weights are on the GPU from the first context on.

    It holds a reference to its device, so that memory which the library uses is freed last.
    """

    def __init__(
        self,
        device: CudaDevice,
        trt: Any,
        runtime: Any,
        path: Path,
        loading: CudaStream,
        compiled: bytes | None,
        logger: Any,
    ) -> None:
        self._device, self._trt, self._path, self._loading = device, trt, path, loading
        plan, before = path.read_bytes(), len(logger.errors)
        self._engine = runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise unloadable(f"{trt.__name__} {trt.__version__}", path, "; ".join(logger.errors[before:]))
        self.streamable_bytes = int(self._engine.streamable_weights_size)
        # Otherwise the contexts made below, to learn shapes, would load all weights to the GPU.
        self.set_resident_weights(0)
        self._cache: Any = None
        self._compiled = compiled
        self.tensors: Mapping[str, Tensor] = self._tensors()
        self.weights_bytes = max(len(plan), self.streamable_bytes)

    def _tensors(self) -> dict[str, Tensor]:
        trt, engine = self._trt, self._engine
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        inputs = {name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT}
        shapes = self._max_shapes({name: tuple(engine.get_tensor_shape(name)) for name in names}, inputs)
        items = {name: int(trt.DataType(engine.get_tensor_dtype(name)).itemsize) for name in names}
        return {name: Tensor(shapes[name], items[name], name in inputs) for name in names}

    def _max_shapes(self, shapes: Mapping[str, Shape], inputs: set[str]) -> Mapping[str, Shape]:
        """The largest shapes over all profiles. An engine gives its inputs' only, so contexts infer the outputs'."""
        dynamic = [name for name, shape in shapes.items() if -1 in shape]
        largest = dict(shapes)
        # One context for each profile, because making one may compile kernels.
        for profile in range(self._engine.num_optimization_profiles if dynamic else 0):
            context = self._create_context(profile, self._loading, few_shapes=False)
            for name in inputs.intersection(dynamic):
                context.set_input_shape(name, self._engine.get_tensor_profile_shape(name, profile)[2])
            for name in dynamic:
                found = tuple(context.get_tensor_shape(name))
                largest[name] = tuple(max(lengths) for lengths in zip(largest[name], found, strict=True))
        return largest

    def set_resident_weights(self, bytes_on_gpu: int) -> None:
        if not self.streamable_bytes:
            return
        self._engine.weight_streaming_budget_v2 = bytes_on_gpu
        found = int(self._engine.weight_streaming_budget_v2)
        if found > bytes_on_gpu:
            # The library reports a refusal, which its Python module drops.
            raise BackendError(
                "an engine keeps more weights on the GPU than its limit",
                where=self._path,
                found=f"{found} bytes",
                expected=f"at most {bytes_on_gpu} bytes",
            )

    def scratch_bytes(self) -> int:
        return int(self._engine.device_memory_size_v2)

    def context(self, profile: int, stream: Stream, scratch: int, scratch_bytes: int, few_shapes: bool) -> CudaContext:
        assert isinstance(stream, CudaStream)
        context = self._create_context(profile, stream, few_shapes)
        context.set_device_memory(scratch, scratch_bytes)
        return CudaContext(self, context, self._path, stream)

    def _create_context(self, profile: int, stream: CudaStream, few_shapes: bool) -> Any:
        """A TensorRT execution context under this profile, without scratch memory."""
        # TensorRT has runtime configurations too, without the options that RTX needs.
        strategy: Any = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        rtx = self._trt.__name__ == RTX
        context = self._engine.create_execution_context(self._runtime_config(strategy, few_shapes) if rtx else strategy)
        if context is None:
            raise BackendError("TensorRT created no execution context", where=self._path, do="free GPU memory")
        if profile and not context.set_optimization_profile_async(profile, stream.handle):
            raise BackendError(f"the engine has no profile {profile}", where=self._path)
        return context

    def _runtime_config(self, strategy: Any, few_shapes: bool) -> Any:
        """RTX's options for compiling kernels and capturing graphs, with the kernels of earlier starts."""
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        # RTX's default compiles in the background and then switches kernels, which changes the last bits of results:
        # the same turn would give other bytes the second time.
        kernels, graphs = self._trt.DynamicShapesKernelSpecializationStrategy, self._trt.CudaGraphStrategy
        config.dynamic_shapes_kernel_specialization_strategy = kernels.EAGER if few_shapes else kernels.NONE
        config.cuda_graph_strategy = graphs.WHOLE_GRAPH_CAPTURE if few_shapes else graphs.DISABLED
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._compiled:
                # Returns false for kernels of another driver or GPU; then all are compiled again.
                self._cache.deserialize(self._compiled)
        config.set_runtime_cache(self._cache)
        return config

    def compiled(self) -> bytes | None:
        serialized = None if self._cache is None else self._cache.serialize()
        return None if serialized is None else bytes(serialized)


class CudaContext:
    """Implements device.Context."""

    def __init__(self, engine: CudaEngine, context: Any, path: Path, stream: CudaStream) -> None:
        self._engine, self._context, self._path, self._stream = engine, context, path, stream

    def bind(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise BackendError(f"the engine has no tensor {name}", where=self._path)

    def shape(self, name: str, shape: Shape) -> None:
        if not self._context.set_input_shape(name, shape):
            raise BackendError(f"the engine was not built for this shape of {name}", where=self._path, found=shape)

    def output_shape(self, name: str) -> Shape:
        return tuple(self._context.get_tensor_shape(name))

    def execute(self) -> None:
        with self._stream.queueing:
            queued = self._context.execute_async_v3(self._stream.handle)
        if not queued:
            self._stream.check_device()
            raise BackendError("an engine failed to run", where=self._path, do="run: animegamer-rt selftest")


def _open_kernels() -> Library | None:
    """Our kernels, if they are built and run on this GPU. Raises BackendError for a file that is not their library."""
    path = find_library()
    if path is None:
        return None
    with as_backend_error():
        library = open_library(path)
    return library if library.has_cuda and library.runs_here else None


def _release(runtime: Any, ordinal: int, allocations: list[tuple[Any, Any]]) -> None:
    """Frees all allocations of a device, the newest first. Errors are ignored."""
    runtime.cudaSetDevice(ordinal)
    runtime.cudaDeviceSynchronize()
    while allocations:
        free, handle = allocations.pop()
        free(handle)


def _check(answer: tuple[Any, ...]) -> Any:
    """The results of a CUDA call. Raises DeviceLostError after a fatal error, BackendError after any other."""
    code, *values = answer
    if code.name in FATAL_ERRORS:
        raise lost(code.name)
    if int(code):
        raise BackendError("a CUDA call failed", found=code.name, do="run: animegamer-rt selftest --device tensorrt")
    return values[0] if len(values) == 1 else tuple(values)
