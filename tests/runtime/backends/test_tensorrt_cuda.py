"""What `cuda` asks of the libraries, in which order and on what stream: they are played by records of what was asked.

No library and no GPU: that the libraries do what they are asked is for a GPU to show.
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
from animegamer_rt.backends.tensorrt.engine_id import DATA_CENTRE, RTX
from animegamer_rt.errors import BackendError, DeviceLostError

SIZE = 1000
STREAMABLE = 600


class Code(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorIllegalAddress = 700
    cudaErrorStreamCaptureInvalidated = 901


class Cuda:
    """cuda.bindings.runtime: every call succeeds and is noted, with a new number for whatever it makes."""

    cudaStreamNonBlocking, cudaEventDisableTiming = 1, 2
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2, cudaMemcpyDeviceToDevice=3)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    makers = ("cudaMalloc", "cudaStreamCreateWithFlags", "cudaStreamEndCapture", "cudaGraphInstantiate")

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.kept: list[np.ndarray] = []

    def cudaMallocHost(self, size: int) -> tuple[Any, ...]:
        self.kept.append(np.zeros(size, np.uint8))
        self.asked.append(("cudaMallocHost", size))
        return Code.cudaSuccess, self.kept[-1].ctypes.data

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.asked.append((name, *arguments))
            return (Code.cudaSuccess, 100 * len(self.asked)) if name in self.makers else (Code.cudaSuccess,)

        return call

    def names(self) -> list[str]:
        return [name for name, *_ in self.asked]


class Context:
    def __init__(self, engine: Engine, config: object) -> None:
        self.engine, self.config = engine, config
        self.lengths = {"x": -1}
        engine.contexts += 1
        engine.budgets_at_contexts.append(engine.budget)

    def __del__(self) -> None:
        self.engine.contexts -= 1

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.lengths[name] = shape[0]
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return (self.lengths["x"], 3) if name == "x" else (2 * self.lengths["x"], 3)

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.profile = profile, stream
        return profile < 2

    def set_device_memory(self, address: int, size: int) -> None:
        self.memory = address, size

    def set_tensor_address(self, name: str, address: int) -> bool:
        return name in self.engine.names


class Engine:
    """ICudaEngine: an input x [-1, 3] with two profiles, an output y [-1, 3]."""

    names = ("x", "y")
    num_io_tensors = num_optimization_profiles = 2
    streamable_weights_size, device_memory_size_v2 = STREAMABLE, 256

    def __init__(self) -> None:
        self.budget, self.contexts = STREAMABLE, 0
        self.budgets_at_contexts: list[int] = []

    @property
    def weight_streaming_budget_v2(self) -> int:
        return self.budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, size: int) -> None:
        # As the library: refused without a word while there are contexts.
        self.budget = self.budget if self.contexts else size

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name == "x" else "out"

    def get_tensor_dtype(self, name: str) -> int:
        return 4

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return -1, 3

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, int]]:
        return [(1, 3), (1, 3), (profile + 1, 3)]

    def create_runtime_config(self) -> SimpleNamespace:
        cache = SimpleNamespace(deserialize=lambda content: False, serialize=lambda: bytearray(b"kernels"))
        return SimpleNamespace(
            set_execution_context_allocation_strategy=lambda strategy: None,
            create_runtime_cache=lambda: cache,
            set_runtime_cache=lambda cache: True,
        )

    def create_execution_context(self, config: object) -> Context:
        return Context(self, config)


def library(engine: Engine, name: str) -> SimpleNamespace:
    class Logger:
        ERROR = 1

        def __init__(self, severity: int) -> None:
            pass

    def runtime(logger: Logger) -> SimpleNamespace:
        return SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)

    both = SimpleNamespace(
        __name__=name,
        __version__="1.7.1",
        Logger=Logger,
        Runtime=runtime,
        DataType=lambda size: SimpleNamespace(itemsize=size),
        TensorIOMode=SimpleNamespace(INPUT="in"),
        ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED="user"),
    )
    if name == RTX:
        both.DynamicShapesKernelSpecializationStrategy = SimpleNamespace(EAGER="eager", NONE="none")
        both.CudaGraphStrategy = SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole", DISABLED="disabled")
    return both


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    handles = SimpleNamespace(get_cuda_native_handle=lambda stream: stream)
    monkeypatch.setitem(sys.modules, "cuda.bindings.utils", handles)
    return Cuda()


def opened(cuda: Cuda, engine: Engine | None = None, name: str = RTX) -> CudaDevice:
    return CudaDevice(cuda, library(engine or Engine(), name), 0, "sm89")


def engine_file(folder: Path) -> Path:
    (folder / "part.engine").write_bytes(bytes(SIZE))
    return folder / "part.engine"


def test_all_that_was_made_is_given_back_when_the_last_user_lets_go(cuda: Cuda, tmp_path: Path) -> None:
    device = opened(cuda)
    engine = device.load(engine_file(tmp_path))
    stream, address = device.stream(), device.allocate(512)
    device.pinned((8,), np.float32)
    graph = stream.capture(lambda: None)
    context = engine.context(0, stream, address, 512, True)
    del device, engine, stream
    gc.collect()
    assert not {"cudaFree", "cudaFreeHost"} & set(cuda.names()), "a context still uses the memory"
    del context
    gc.collect()
    freed = cuda.asked[cuda.names().index("cudaDeviceSynchronize") + 1 :]
    assert [name for name, *_ in freed] == [
        "cudaGraphExecDestroy",
        "cudaFreeHost",
        "cudaFree",
        "cudaStreamDestroy",
        "cudaStreamDestroy",
    ]
    assert freed[0][1] == graph and freed[2][1] == address


def test_host_memory_that_is_not_pinned_is_read_before_the_copy_returns(cuda: Cuda) -> None:
    device = opened(cuda)
    stream, pinned = device.stream(), device.pinned((4,), np.float32)
    stream.copy_in(256, pinned)
    assert cuda.names()[-1] == "cudaMemcpyAsync"
    stream.copy_in(256, np.ones(4, np.float32))
    assert cuda.names()[-2:] == ["cudaMemcpyAsync", "cudaStreamSynchronize"]


def test_capture_ends_also_when_what_is_captured_fails(cuda: Cuda) -> None:
    def fail() -> None:
        raise BackendError("an engine failed to run")

    stream = opened(cuda).stream()
    with pytest.raises(BackendError, match="failed to run"):
        stream.capture(fail)
    assert cuda.names()[-2:] == ["cudaStreamBeginCapture", "cudaStreamEndCapture"]
    stream.capture(lambda: None)
    assert cuda.names()[-1] == "cudaGraphDestroy"


def test_weights_stay_on_the_host_until_the_budget_is_known(cuda: Cuda, tmp_path: Path) -> None:
    engine = Engine()
    loaded = opened(cuda, engine).load(engine_file(tmp_path))
    assert engine.budgets_at_contexts == [0, 0], "one context a profile, that only tells shapes"
    assert loaded.tensors["x"].shape == (2, 3) and loaded.tensors["y"].shape == (4, 3)
    assert (loaded.weights_bytes, loaded.streamable_bytes) == (SIZE, STREAMABLE)
    loaded.set_resident_weights(STREAMABLE)
    assert engine.budget == STREAMABLE and engine.contexts == 0


def test_budget_that_the_library_does_not_take_is_an_error(cuda: Cuda, tmp_path: Path) -> None:
    device = opened(cuda)
    loaded = device.load(engine_file(tmp_path))
    loaded.set_resident_weights(400)
    context = loaded.context(0, device.stream(), 256, 256, True)
    with pytest.raises(BackendError, match="keeps more weights on the GPU.*found 400 bytes; expected at most 100"):
        loaded.set_resident_weights(100)
    del context


def test_answers_do_not_depend_on_how_often_a_shape_was_seen(cuda: Cuda, tmp_path: Path) -> None:
    device = opened(cuda)
    loaded, stream = device.load(engine_file(tmp_path)), device.stream()
    found = {}
    for few_shapes in (True, False):
        context: Any = loaded.context(1, stream, 512, 256, few_shapes)
        config = context._context.config
        found[few_shapes] = config.dynamic_shapes_kernel_specialization_strategy, config.cuda_graph_strategy
        assert context._context.memory == (512, 256) and context._context.profile == (1, stream.handle)
    assert found == {True: ("eager", "whole"), False: ("none", "disabled")}, "never the library's lazy own"


def test_tensorrt_of_data_centres_is_asked_for_nothing_that_only_rtx_has(cuda: Cuda, tmp_path: Path) -> None:
    device = opened(cuda, name=DATA_CENTRE)
    loaded = device.load(engine_file(tmp_path))
    context: Any = loaded.context(0, device.stream(), 512, 256, True)
    assert context._context.config == "user" and loaded.compiled() is None and device.captures


def test_refusals_of_the_library_are_errors(cuda: Cuda, tmp_path: Path) -> None:
    device = opened(cuda)
    loaded, stream = device.load(engine_file(tmp_path)), device.stream()
    with pytest.raises(BackendError, match="no profile 2"):
        loaded.context(2, stream, 256, 256, True)
    context = loaded.context(0, stream, 256, 256, True)
    with pytest.raises(BackendError, match="no tensor z"):
        context.bind("z", 256)


def test_what_was_compiled_elsewhere_is_ignored_and_what_is_compiled_here_handed_out(
    cuda: Cuda, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = opened(cuda)
    loaded = device.load(engine_file(tmp_path), b"of another driver")
    loaded.context(0, device.stream(), 256, 256, True)
    assert loaded.compiled() == b"kernels" and not caplog.records


@pytest.mark.parametrize(
    ("code", "error"), [(Code.cudaErrorInvalidValue, BackendError), (Code.cudaErrorIllegalAddress, DeviceLostError)]
)
def test_an_error_that_lasts_is_told_from_one_that_passes(cuda: Cuda, code: Code, error: type[BackendError]) -> None:
    stream = opened(cuda).stream()
    cuda.cudaStreamSynchronize = lambda handle: (code,)  # type: ignore[attr-defined]
    with pytest.raises(BackendError, match=code.name) as raised:
        stream.synchronize()
    assert type(raised.value) is error
