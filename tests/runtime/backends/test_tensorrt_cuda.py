"""What a user meets of TensorRT's library and CUDA without a GPU: refusals, and errors that cost the GPU.

Both libraries are stand-ins. That the real ones do what they are asked is shown by `animegamer-rt selftest --device
tensorrt` on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from animegamer_rt.backends.tensorrt.cuda import CudaContext, CudaDevice
from animegamer_rt.backends.tensorrt.engine_id import RTX
from animegamer_rt.errors import BackendError, DeviceLostError, EngineStaleError


class Code(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorDevicesUnavailable = 46
    cudaErrorIllegalAddress = 700
    cudaErrorSystemDriverMismatch = 803


class Cuda:
    """cuda.bindings.runtime: every call succeeds, unless `fails` names its error."""

    cudaStreamNonBlocking, cudaEventDisableTiming = 1, 2
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2, cudaMemcpyDeviceToDevice=3)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    makers = ("cudaMalloc", "cudaStreamCreateWithPriority")

    def __init__(self) -> None:
        self.fails: dict[str, Code] = {}

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        def call(*arguments: Any) -> tuple[Any, ...]:
            if name in self.fails:
                return self.fails[name], None
            if name == "cudaDeviceGetStreamPriorityRange":
                return Code.cudaSuccess, 0, -5
            return (Code.cudaSuccess, 100) if name in self.makers else (Code.cudaSuccess,)

        return call


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    handles = SimpleNamespace(get_cuda_native_handle=lambda stream: stream)
    monkeypatch.setitem(sys.modules, "cuda.bindings.utils", handles)
    return Cuda()


def opened(cuda: Cuda, says: str = "") -> CudaDevice:
    """A device whose library can load no engine, and says why."""
    logger = type("ILogger", (), {"ERROR": 1})

    def runtime(log: Any) -> SimpleNamespace:
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: log.log(1, says) if says else None)

    library = SimpleNamespace(__name__=RTX, __version__="1.7.1", ILogger=logger, Runtime=runtime)
    return CudaDevice(cuda, library, 0, "sm89")


@pytest.mark.parametrize(
    ("says", "error", "words"),
    [
        (
            "Serialization assertion failed. Version tag does not match.",
            EngineStaleError,
            "engine of another build; found .*Version tag.*; run: animegamer-rt build-engines",
        ),
        (
            "Error Code 2: OutOfMemory (Requested size was 4338300000 bytes.)",
            BackendError,
            "too little GPU memory for the engine; found .*OutOfMemory.*; close other programs",
        ),
        ("Error Code 1: Cuda Runtime (unknown error)", BackendError, r"cannot load the engine; found .*unknown error"),
        ("", BackendError, "cannot load the engine; found no reason given; check the driver"),
    ],
)
def test_engine_that_the_library_cannot_load_is_refused_with_its_reason(
    cuda: Cuda, tmp_path: Path, says: str, error: type[Exception], words: str
) -> None:
    (tmp_path / "part.engine").write_bytes(bytes(1000))
    with pytest.raises(error, match=rf"part\.engine: .*{words}"):
        opened(cuda, says).load(tmp_path / "part.engine")


def test_every_no_of_the_library_is_an_error(cuda: Cuda) -> None:
    names = ("set_tensor_address", "set_input_shape", "execute_async_v3")
    refusing = SimpleNamespace(**dict.fromkeys(names, lambda *given: False))
    context = CudaContext(Any, refusing, Path("part.engine"), opened(cuda).stream())
    with pytest.raises(BackendError, match="no tensor z"):
        context.bind("z", 256)
    with pytest.raises(BackendError, match="not built for this shape of x"):
        context.shape("x", (9, 3))
    with pytest.raises(BackendError, match="an engine failed to run"):
        context.execute()
    cuda.fails["cudaGetLastError"] = Code.cudaErrorDevicesUnavailable  # the GPU left in the turn
    with pytest.raises(DeviceLostError, match="lost the GPU; found cudaErrorDevicesUnavailable; restart the"):
        context.execute()


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


@pytest.mark.parametrize(
    ("code", "arch", "said"),
    [
        (Code.cudaErrorInsufficientDriver, (8, 9), "no NVIDIA driver, or it is too old.*found cuda.*CUDA 13 needs 580"),
        (Code.cudaSuccess, None, "finds no NVIDIA GPU.*CUDA_VISIBLE_DEVICES"),
        (Code.cudaErrorDevicesUnavailable, (8, 9), "another program uses the GPU exclusively.*nvidia-smi -c DEFAULT"),
        (Code.cudaErrorSystemDriverMismatch, (8, 9), "older module still runs.*restart the machine"),
        (Code.cudaErrorMemoryAllocation, (8, 9), "full before anything was loaded.*nvidia-smi lists them"),
        (
            Code.cudaSuccess,
            (6, 1),
            "TensorRT does not run on this GPU; found sm61; expected sm75 or later; use --device",
        ),
    ],
)
def test_gpu_that_cannot_be_used_is_named_before_an_engine_is_read(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, code: Code, arch: tuple[int, int] | None, said: str
) -> None:
    major, minor = arch or (0, 0)
    properties = SimpleNamespace(major=major, minor=minor)
    runtime = SimpleNamespace(
        cudaGetDeviceCount=lambda: (code, None if code else int(arch is not None)),
        cudaGetDeviceProperties=lambda ordinal: (Code.cudaSuccess, properties),
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", runtime)
    with pytest.raises(BackendError, match=said):
        CudaDevice.open()
