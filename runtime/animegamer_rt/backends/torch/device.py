"""The torch device: the CPU, or an NVIDIA GPU with its stream, CUDA graphs and pinned host memory.

`TorchDevice` is the CPU, where work runs at once; `CudaTorchDevice` is an NVIDIA GPU. Other modules of this backend
take either and leave streams, copies and captures to it.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from animegamer_rt.backends.interface import DeviceMemory
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling.host import processor, processor_name
from animegamer_rt.profiling.host_memory import VAE_BYTES

from ..cuda_errors import OUT_OF_MEMORY, lost

Work = Callable[[], None]
NO_CAPTURE = "a CUDA graph could not be captured", "report it; graphs=False of the loader runs without graphs"
REFUSALS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        OUT_OF_MEMORY: ("the GPU's memory is full", "close other programs, or use a bundle of lower precision"),
        98: ("the GPU cannot run this code: it was built for other GPUs", "install a torch built for this GPU"),
        209: ("the GPU cannot run this code: it was built for other GPUs", "install a torch built for this GPU"),
        222: ("the driver is too old for this code", "update the driver, or install a torch for an older CUDA"),
        **dict.fromkeys(range(900, 909), NO_CAPTURE),
    }
)
"""CUDA's errors that a process survives: what happened, and what to do. After any other the GPU is lost."""
FIRST = -1
"""The priority of a stream whose blocks start before those of other streams (CUDA's are 0 to -5)."""
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables with which users configure PyTorch's allocator."""
CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Variable that gives each stream a cuBLAS workspace (docs.nvidia.com/cuda/cublas, "Results reproducibility")."""


class TorchDevice:
    """The CPU: work runs at once, and nothing is captured."""

    captures = False

    def __init__(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.device, self.dtype = torch.device(device), dtype

    @property
    def description(self) -> str:
        """A readable description, such as "CPU, 2 threads"."""
        return f"CPU, {torch.get_num_threads()} threads"

    @property
    def machine(self) -> str:
        """What of the machine affects results: other processors or numbers of threads sum in another order."""
        kind = torch.backends.cpu.get_cpu_capability()
        return f"{processor_name()}, {processor()}, {kind}, {torch.get_num_threads()} threads"

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """A context for all work of this backend, in any thread: no gradients, and on a GPU this device's stream.

        Raises DeviceLostError if the process has lost the GPU, BackendError for an error of CUDA that it survives.
        """
        with torch.no_grad():
            yield

    def on_side_stream(self) -> TorchDevice:
        """A TorchDevice on the same GPU with its own high-priority stream, so that its work runs concurrently.

        Waits for all work queued here. The two may share tensors that neither writes. On the CPU it is this device
        itself, because both would compete for the same cores.
        """
        return self

    def zeros(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        """A zeroed tensor on the device, by default in the device's dtype."""
        return torch.zeros(tuple(shape), dtype=dtype or self.dtype, device=self.device)

    def free_bytes(self) -> float:
        """Bytes of device memory that can still be allocated; a constant on the CPU, so that a bundle is decoded in the
        same way, to the same bytes, on every machine.
        """
        return VAE_BYTES

    def defragment(self, network: nn.Module) -> None:
        """Defragments a network's tensors on the device, if this memory has holes between them that nothing can use."""

    def reserve(self, size: int) -> None:
        """Announces that graphs will need `size` bytes: their pool begins with the largest such block."""

    @contextlib.contextmanager
    def in_pool(self) -> Iterator[None]:
        """Around work that will be captured: it takes its memory from the graphs' pool, so that none is held twice."""
        yield

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A zeroed tensor in pinned host memory. The GPU copies it when the copy runs, not when it is queued.

        Raises BackendError if the host has no pinned memory left.
        """
        return torch.zeros(tuple(shape), dtype=dtype)

    def keep_on_host(self, layer: nn.Linear | nn.Embedding) -> None:
        """Moves a layer's weight to pinned host memory."""
        on_host = self.pinned(layer.weight.shape, layer.weight.dtype).copy_(layer.weight)
        layer.weight = nn.Parameter(on_host, requires_grad=False)

    def to_device(self, array: npt.NDArray[np.generic]) -> Tensor:
        """A new tensor on the device with the array's values and dtype."""
        return torch.tensor(array, device=self.device)

    def to_host(self, tensor: Tensor) -> Tensor:
        """A copy of the tensor in host memory; waits for all queued work."""
        return tensor.to("cpu", copy=True)

    def mark(self) -> object:
        """A mark after all work queued so far, for `wait`."""
        return None

    def wait(self, mark: object) -> None:
        """Returns once the device has passed the mark."""

    def capture(self, work: Work) -> Work:
        """Captures the work without running it; the result replays it on the same addresses."""
        raise BackendError("the CPU has no CUDA graphs", found=self.description)


class CudaTorchDevice(TorchDevice):
    """One NVIDIA GPU: one stream for all work of this device, and one memory pool for its graphs."""

    def __init__(self, dtype: torch.dtype, captures: bool = True, priority: int = 0) -> None:
        super().__init__(dtype, f"cuda:{torch.cuda.current_device()}")
        _use_growing_segments()
        if dtype == torch.float32:
            torch.backends.cudnn.allow_tf32 = False  # of convolutions, by PyTorch's default; products keep float32
        self.captures = captures
        self.stream = torch.cuda.Stream(self.device, priority)
        self._pool, self._to_reserve = torch.cuda.MemPool(), 0
        # A capture begins with a wait for the whole device, which would fail inside another capture.
        self._capturing = threading.Lock()
        self._threads = threading.local()
        self._pinned_buffers: dict[int, Tensor] = {}
        self._receiving = threading.Lock()

    @property
    def description(self) -> str:
        return f"{torch.cuda.get_device_name(self.device)}, {'CUDA graphs' if self.captures else 'eager'}"

    @property
    def machine(self) -> str:
        major, minor = torch.cuda.get_device_capability(self.device)
        return f"{torch.cuda.get_device_name(self.device)} sm{major}{minor}"

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        # These three settings are per thread, and the vae's second chunk runs in another one.
        try:
            with torch.no_grad(), torch.cuda.device(self.device), torch.cuda.stream(self.stream):
                self._make_handles()
                yield
        except torch.OutOfMemoryError as error:
            raise _translate(error, OUT_OF_MEMORY) from error
        except torch.AcceleratorError as error:
            raise _translate(error, getattr(error, "error_code", None)) from error

    def _make_handles(self) -> None:
        """Creates the calling thread's library handles, once, outside captures: creation may wait for the device."""
        if not hasattr(self._threads, "ready"):
            with self._capturing:
                torch.cuda.current_blas_handle()
            self._threads.ready = True

    def on_side_stream(self) -> CudaTorchDevice:
        # It also has its own memory pool: graphs that share memory must not run at once.
        self.stream.synchronize()
        # High priority, because a player waits for the state while the denoiser is already running.
        other = CudaTorchDevice(self.dtype, self.captures, priority=FIRST)
        other._capturing = self._capturing
        return other

    def free_bytes(self) -> float:
        free, whole = torch.cuda.mem_get_info(self.device)
        reserved = torch.cuda.memory_reserved(self.device)
        allowed = torch.cuda.get_per_process_memory_fraction(self.device) * whole - reserved
        return min(free, allowed) + reserved - torch.cuda.memory_allocated(self.device)

    def defragment(self, network: nn.Module) -> None:
        # Via the host. PyTorch returns memory to the GPU in pieces of 20 MiB; weights that are gone, or of half their
        # former size, leave smaller ones.
        there = [tensor for tensor in (*network.parameters(), *network.buffers()) if tensor.device == self.device]
        for tensor in there:
            tensor.data = tensor.data.cpu()
        torch.cuda.empty_cache()
        for tensor in there:
            tensor.data = tensor.data.to(self.device)

    def reserve(self, size: int) -> None:
        self._to_reserve = max(self._to_reserve, size)

    @contextlib.contextmanager
    def in_pool(self) -> Iterator[None]:
        with self._capturing:
            # Inside a pool PyTorch returns no cached memory to the GPU before it gives up (pytorch issue 159674).
            torch.cuda.empty_cache()
            with torch.cuda.use_mem_pool(self._pool, self.device):
                if self._to_reserve:
                    # The block is freed at once but stays in the pool, and the graphs' memory is cut from it. Without
                    # it they would need more than twice as much: pieces of one size do not fit another, and a pool
                    # returns none to the GPU.
                    torch.empty(self._to_reserve, dtype=torch.uint8, device=self.device)
                    self._to_reserve = 0
                yield

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        try:
            return torch.zeros(tuple(shape), dtype=dtype, pin_memory=True)
        except torch.AcceleratorError as error:
            if "out of memory" not in str(error):
                raise
            raise BackendError(
                "the host has no pinned memory left for copies to and from the GPU",
                found=f"{math.prod(shape) * dtype.itemsize / 2**20:.0f} MiB requested",
                do="close other programs, or raise the limit of this machine, WSL or the container",
            ) from error

    def to_host(self, tensor: Tensor) -> Tensor:
        # Copies through a pinned buffer that is never freed, one per size. A pinned result could be freed in any thread
        # at any time; torch's host allocator then records an event on this stream, and an event recorded during a
        # capture fails later (pytorch issue 193982 reports the same for device memory).
        with self._receiving:
            if tensor.nbytes not in self._pinned_buffers:
                self._pinned_buffers[tensor.nbytes] = self.pinned((tensor.nbytes,), torch.uint8)
            pinned = self._pinned_buffers[tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            pinned.copy_(tensor, non_blocking=True)
            self.stream.synchronize()
            return pinned.clone()

    def mark(self) -> object:
        event = torch.cuda.Event()
        event.record(self.stream)
        return event

    def wait(self, mark: object) -> None:
        assert isinstance(mark, torch.cuda.Event)
        mark.synchronize()

    def memory(self) -> DeviceMemory:
        """The peak of PyTorch's memory on this GPU in this process."""
        reserved, used = torch.cuda.max_memory_reserved(self.device), torch.cuda.max_memory_allocated(self.device)
        return DeviceMemory(reserved, "reserved by PyTorch, without the driver's own memory", used)

    def capture(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # All graphs of a stream share one pool: they run one at a time, and results are copied to buffers outside it.
        # Thread-local, because another thread may copy frames to the host during the capture.
        pool: Any = self._pool.id
        recording = torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local")
        with self._capturing, recording:
            work()
        return graph.replay


def compute_deterministically() -> None:
    """Makes PyTorch use deterministic algorithms in this process where it has them. Call before CUDA is used.

    Uninitialised memory is not filled: nothing reads it, and filling would take time.
    """
    os.environ.setdefault(CUBLAS_WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _use_growing_segments() -> None:
    """Makes PyTorch allocate GPU memory in expandable segments, unless the user has configured its allocator.

    In segments of fixed sizes, 1.25 of 9.9 GiB were free, but in pieces too small to use, when full size ran out of
    memory on 12 GB. Windows has no expandable segments.
    """
    set_allocator = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # private: it may disappear
    if set_allocator and sys.platform == "linux" and not any(name in os.environ for name in ALLOCATOR_VARIABLES):
        set_allocator("expandable_segments:True")


def _translate(error: Exception, code: int | None) -> BackendError:
    """CUDA's error as one of ours. An error without a code counts as a lost GPU."""
    found = str(error).partition("\n")[0]
    if code is None or code not in REFUSALS:
        return lost(found)
    what, do = REFUSALS[code]
    return BackendError(what, found=found, do=do)


class GraphCache:
    """CUDA graphs by key. A key's work runs eagerly once in each thread, is then captured, and replayed from then on.

    The key must determine what the work does, because host values are frozen into the graph. The capturing thread must
    have run the work before, so that its library handles exist; any thread may replay.
    """

    def __init__(self, torch_device: TorchDevice) -> None:
        self._device = torch_device
        self._warm = _ThreadKeys()
        self._captured: dict[Hashable, Work] = {}

    def run(self, key: Hashable, work: Work) -> None:
        """Queues the work of this key."""
        if not self._device.captures:
            work()
            return
        if key not in self._captured:
            if key not in self._warm.keys:
                with self._device.in_pool():
                    work()
                self._warm.keys.add(key)
                return
            self._captured[key] = self._device.capture(work)
        self._captured[key]()


class _ThreadKeys(threading.local):
    """Keys whose work this thread has run."""

    def __init__(self) -> None:
        self.keys: set[Hashable] = set()
