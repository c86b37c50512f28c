"""What a user meets of TensorRT's library and CUDA without a GPU: refusals, failed captures, memory that is given back.

Both libraries are stand-ins. That the real ones do what they are asked is shown by `animegamer-rt selftest --device
tensorrt` on a GPU.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from animegamer_rt.backends.tensorrt.cuda import CudaDevice
from animegamer_rt.backends.tensorrt.engine_id import RTX
from animegamer_rt.errors import BackendError, DeviceLostError, EngineStaleError

SIZE = 1000
STREAMABLE = 600


class Code(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorIllegalAddress = 700


class Cuda:
    """cuda.bindings.runtime: every call succeeds and is recorded, unless `fails` names its error."""

    cudaStreamNonBlocking, cudaEventDisableTiming = 1, 2
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2, cudaMemcpyDeviceToDevice=3)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    makers = ("cudaMalloc", "cudaStreamCreateWithFlags", "cudaStreamEndCapture", "cudaGraphInstantiate")

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, Code] = {}

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name], None
            return (Code.cudaSuccess, 100 * len(self.calls)) if name in self.makers else (Code.cudaSuccess,)

        return call


class Engine:
    """ICudaEngine: an input x [-1, 3] with two profiles, an output y of twice its length, and its own contexts."""

    names, num_io_tensors, num_optimization_profiles = ("x", "y"), 2, 2
    streamable_weights_size, device_memory_size_v2 = STREAMABLE, 256

    def __init__(self) -> None:
        self.weight_streaming_budget_v2, self.length = STREAMABLE, -1

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "x" else "out"

    def get_tensor_dtype(self, name: str) -> int:
        return 4

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.length if name == "x" else 2 * self.length if self.length > 0 else -1, 3

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, int]]:
        return [(1, 3), (1, 3), (profile + 1, 3)]

    def create_runtime_config(self) -> SimpleNamespace:
        cache = SimpleNamespace(deserialize=lambda content: False, serialize=lambda: bytearray(b"kernels"))
        return SimpleNamespace(
            set_execution_context_allocation_strategy=lambda strategy: None,
            create_runtime_cache=lambda: cache,
            set_runtime_cache=lambda cache: True,
        )

    def create_execution_context(self, config: object) -> SimpleNamespace:
        return SimpleNamespace(
            set_input_shape=lambda name, shape: setattr(self, "length", shape[0]) is None,
            get_tensor_shape=self.get_tensor_shape,
            set_optimization_profile_async=lambda profile, stream: profile < 2,
            set_device_memory=lambda address, size: None,
            set_tensor_address=lambda name, address: name in self.names,
            execute_async_v3=lambda stream: False,
        )


def library(engine: Engine | None) -> SimpleNamespace:
    return SimpleNamespace(
        __name__=RTX,
        __version__="1.7.1",
        Logger=type("Logger", (), {"ERROR": 1, "__init__": lambda self, severity: None}),
        Runtime=lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: engine),
        DataType=lambda size: SimpleNamespace(itemsize=size),
        TensorIOMode=SimpleNamespace(INPUT="in"),
        ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED="user"),
        DynamicShapesKernelSpecializationStrategy=SimpleNamespace(EAGER="eager", NONE="none"),
        CudaGraphStrategy=SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole", DISABLED="disabled"),
    )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    handles = SimpleNamespace(get_cuda_native_handle=lambda stream: stream)
    monkeypatch.setitem(sys.modules, "cuda.bindings.utils", handles)
    return Cuda()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "part.engine").write_bytes(bytes(SIZE))
    return tmp_path / "part.engine"


def opened(cuda: Cuda, engine: Engine | None = None) -> CudaDevice:
    return CudaDevice(cuda, library(engine), 0, "sm89")


def test_memory_is_given_back_when_the_last_user_lets_go(cuda: Cuda, file: Path) -> None:
    device = opened(cuda, Engine())
    engine, stream, address = device.load(file), device.stream(), device.allocate(512)
    context = engine.context(0, stream, address, 512, True)
    del device, engine, stream
    gc.collect()
    assert "cudaFree" not in cuda.calls, "a context still uses the memory"
    del context
    gc.collect()
    freed = cuda.calls[cuda.calls.index("cudaDeviceSynchronize") + 1 :]
    assert freed == ["cudaFree", "cudaStreamDestroy", "cudaStreamDestroy"]


def test_stream_works_on_after_a_failed_capture(cuda: Cuda) -> None:
    def fail() -> None:
        raise BackendError("an engine failed to run")

    stream = opened(cuda).stream()
    with pytest.raises(BackendError, match="failed to run"):
        stream.capture(fail)
    assert cuda.calls[-2:] == ["cudaStreamBeginCapture", "cudaStreamEndCapture"]


def test_array_that_is_not_pinned_is_read_before_the_copy_returns(cuda: Cuda) -> None:
    opened(cuda).stream().copy_in(256, np.ones(4, np.float32))
    assert cuda.calls[-2:] == ["cudaMemcpyAsync", "cudaStreamSynchronize"]


def test_refusals_of_the_library_are_errors(cuda: Cuda, file: Path) -> None:
    with pytest.raises(EngineStaleError, match="cannot load the engine; run: animegamer-rt export tensorrt"):
        opened(cuda).load(file)
    device = opened(cuda, Engine())
    loaded, stream = device.load(file, b"kernels of another driver"), device.stream()
    with pytest.raises(BackendError, match="no profile 2"):
        loaded.context(2, stream, 256, 256, True)
    context = loaded.context(0, stream, 256, 256, True)
    with pytest.raises(BackendError, match="no tensor z"):
        context.bind("z", 256)
    with pytest.raises(BackendError, match="an engine failed to run"):
        context.execute()
    assert loaded.compiled() == b"kernels", "kernels of another driver are compiled again"


@pytest.mark.parametrize(
    ("call", "code", "error"),
    [
        ("cudaStreamSynchronize", Code.cudaErrorInvalidValue, BackendError),
        ("cudaStreamSynchronize", Code.cudaErrorIllegalAddress, DeviceLostError),
        ("cudaMalloc", Code.cudaErrorMemoryAllocation, BackendError),
        ("cudaMallocHost", Code.cudaErrorMemoryAllocation, BackendError),
    ],
)
def test_fatal_errors_are_told_from_others(cuda: Cuda, call: str, code: Code, error: type[BackendError]) -> None:
    device = opened(cuda)
    cuda.fails[call] = code
    with pytest.raises(BackendError, match=code.name) as raised:
        device.stream().synchronize()
        device.allocate(512)
        device.pinned((8,), np.float32)
    assert type(raised.value) is error
