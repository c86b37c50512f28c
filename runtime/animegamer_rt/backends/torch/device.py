"""Where the torch engines run: a CPU, or an NVIDIA GPU with CUDA graphs, pinned copies and streams.

`TorchDevice` is the CPU, where work just runs; `CudaTorchDevice` is an NVIDIA GPU. No other file of this backend uses
torch.cuda. **It has not been run on a GPU yet**; all around it is tested on the CPU.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from animegamer_rt.backends.interface import DeviceMemory
from animegamer_rt.errors import BackendError, DeviceLostError

Work = Callable[[], None]
TIMED = 6
"""Runs of what is timed; the first, when libraries still set themselves up, does not count."""


class TorchDevice:
    """The CPU: nothing is queued, nothing is captured."""

    captures = False

    def __init__(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.device, self.dtype = torch.device(device), dtype

    @property
    def words(self) -> str:
        """The device in words."""
        return f"CPU, {torch.get_num_threads()} threads"

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Everything of this backend runs inside: no gradients, and on a GPU the one stream, in any thread."""
        with torch.no_grad():
            yield

    def on_side_stream(self) -> TorchDevice:
        """A place on the same device whose work need not wait for this one's, once all that is queued here is done.

        Both may read what neither writes. On the CPU, where they would take each other's cores, it is this one.
        """
        return self

    def zeros(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        """A buffer on the device that keeps its address, in the place's own type if none is given."""
        return torch.zeros(tuple(shape), dtype=dtype or self.dtype, device=self.device)

    def free_bytes(self) -> float:
        """Memory of the device that buffers and work may still take; endless where it is the host's."""
        return math.inf

    def reserve(self, size: int) -> None:
        """Notes bytes that graphs are going to share, for the first capture to take them in one piece."""

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Host memory that the device copies from and to by itself: what it holds counts when the copy runs."""
        return torch.zeros(tuple(shape), dtype=dtype)

    def to_device(self, array: npt.NDArray[np.generic]) -> Tensor:
        """A new tensor of an array's values and type on the device."""
        return torch.tensor(array, device=self.device)

    def to_host(self, tensor: Tensor) -> Tensor:
        """A tensor's values in host memory of their own, once all that was queued is done."""
        return tensor.to("cpu", copy=True)

    def mark(self) -> object:
        """A mark after all that is queued now."""
        return None

    def wait(self, mark: object) -> None:
        """Returns once the device has passed the mark."""

    def milliseconds(self, work: Callable[[], object]) -> float:
        """How long the work takes, once it has been run: of several times, the one in the middle. Waits for it."""
        times = []
        for _ in range(TIMED):
            started = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - started))
        return median(times[1:])

    def capture(self, work: Work) -> Work:
        """What queues the work again, on the same addresses. The work itself is noted, not run."""
        raise BackendError("this place captures no work", found=self.words)


class CudaTorchDevice(TorchDevice):
    """One NVIDIA GPU: one stream for all that runs here and one memory pool for its graphs."""

    def __init__(self, dtype: torch.dtype, captures: bool = True) -> None:
        if not torch.cuda.is_available():
            cuda = torch.version.cuda
            raise BackendError(
                "PyTorch finds no NVIDIA GPU",
                found=f"torch {torch.__version__}, built {f'for CUDA {cuda}' if cuda else 'without CUDA'}",
                do="check the driver with nvidia-smi and install a CUDA build of torch, or play with --device cpu",
            )
        super().__init__(dtype, f"cuda:{torch.cuda.current_device()}")
        self.captures = captures
        self.stream = torch.cuda.Stream(self.device)
        self._pool, self._to_reserve = torch.cuda.graph_pool_handle(), 0
        # A capture begins with a wait for the whole device, which must not meet another's.
        self._capturing = threading.Lock()
        self._threads = threading.local()
        self._pinned_buffers: dict[int, Tensor] = {}
        self._receiving = threading.Lock()

    @property
    def words(self) -> str:
        graphs = "CUDA graphs" if self.captures else "eager"
        return f"{torch.cuda.get_device_name(self.device)}, {graphs}"

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        # Gradients off, device and stream are all of the calling thread; the vae's second chunk has one of its own.
        try:
            with torch.no_grad(), torch.cuda.device(self.device), torch.cuda.stream(self.stream):
                self._make_handles()
                yield
        except torch.AcceleratorError as error:  # after one of these CUDA refuses all that this process asks
            raise DeviceLostError("the GPU is lost to this process", found=str(error).partition("\n")[0]) from error

    def _make_handles(self) -> None:
        """The calling thread's own, once: making them may wait for the device, which ends a capture in any thread."""
        if not hasattr(self._threads, "ready"):
            with self._capturing:
                torch.cuda.current_blas_handle()
            self._threads.ready = True

    def on_side_stream(self) -> CudaTorchDevice:
        # With a pool of its own, too: graphs over the same memory must not run at once.
        self.stream.synchronize()
        other = CudaTorchDevice(self.dtype, self.captures)
        other._capturing = self._capturing
        return other

    def free_bytes(self) -> float:
        free, whole = torch.cuda.mem_get_info(self.device)
        reserved = torch.cuda.memory_reserved(self.device)
        allowed = torch.cuda.get_per_process_memory_fraction(self.device) * whole - reserved
        return min(free, allowed) + reserved - torch.cuda.memory_allocated(self.device)

    def reserve(self, size: int) -> None:
        self._to_reserve = max(self._to_reserve, size)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        try:
            return torch.zeros(tuple(shape), dtype=dtype, pin_memory=True)
        except torch.AcceleratorError as error:
            if "out of memory" not in str(error):
                raise
            raise BackendError(
                "the host has no pinned memory left for the GPU to copy from and to",
                found=f"{math.prod(shape) * dtype.itemsize / 2**20:.0f} MiB asked for",
                do="close other programs, or raise the machine's limit (of WSL or a container)",
            ) from error

    def to_host(self, tensor: Tensor) -> Tensor:
        # By way of pinned memory that is never let go, one buffer a size. A result that were pinned itself would be
        # dropped in any thread and at any time; torch's host allocator then records an event on this stream, and one
        # that is recorded while the stream is captured fails later (pytorch issue 193982 is its twin on the device).
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

    def milliseconds(self, work: Callable[[], object]) -> float:
        times: list[float] = []
        for _ in range(TIMED):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record(self.stream)
            work()
            after.record(self.stream)
            after.synchronize()
            times.append(before.elapsed_time(after))
        return median(times[1:])

    def memory(self) -> DeviceMemory:
        """The peak of all that PyTorch holds on this GPU, for whichever place."""
        reserved, used = torch.cuda.max_memory_reserved(self.device), torch.cuda.max_memory_allocated(self.device)
        return DeviceMemory(reserved, "reserved by PyTorch, beside it the driver's own", used)

    def capture(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # One pool serves all graphs of a stream: nothing of one lives on in it when another runs, results are copied to
        # buffers.
        # Thread-local: another thread may be copying frames out meanwhile.
        recording = torch.cuda.graph(graph, pool=self._pool, stream=self.stream, capture_error_mode="thread_local")
        with self._capturing, recording:
            if self._to_reserve:
                # Let go at once, it stays the pool's, and all that graphs hold is cut from it. Asked for piece by piece
                # they would hold twice as much and more: pieces do not fit, and a capture gives none back to the GPU.
                torch.empty(self._to_reserve, dtype=torch.uint8, device=self.device)
                self._to_reserve = 0
            work()
        return graph.replay


class GraphCache:
    """Work by key: run plainly the first time, when libraries still set themselves up, then captured and replayed.

    What a key's work does must be decided by the key: numbers of the host are frozen into the graph. Any thread may
    replay; the one that captures has run the work before, as the libraries' handles are made for each thread.
    """

    def __init__(self, torch_device: TorchDevice) -> None:
        self._device = torch_device
        self._warm = _OfThisThread()
        self._captured: dict[Hashable, Work] = {}

    def run(self, key: Hashable, work: Work, plainly: bool = False) -> None:
        """Queues the work of this key; `plainly` keeps it from being captured yet."""
        if key not in self._captured:
            if plainly or not self._device.captures or key not in self._warm.keys:
                work()
                self._warm.keys.add(key)
                return
            self._captured[key] = self._device.capture(work)
        self._captured[key]()


class _OfThisThread(threading.local):
    """Keys of the work that the thread which asks has run."""

    def __init__(self) -> None:
        self.keys: set[Hashable] = set()
