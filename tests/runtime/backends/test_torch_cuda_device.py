"""The place of an NVIDIA GPU on a stand-in for torch.cuda, and the denoiser on a device that runs late.

What is queued there is done when it is waited for: what is read or written over too soon is then wrong here, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from test_torch_parts import PLAN, SHAPE, Turn, close, engines, networks
from torch import Tensor
from torch_tape import TapeDevice

from animegamer_rt.backends.torch import device as place_module
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.device import TIMED_RUNS, CudaTorchDevice, TorchDevice, Work
from animegamer_rt.bundle.denoise_plan import build_plan
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.errors import BackendError, DeviceLostError

SOON_S = 0.05
"""How long a thread is given to do what it must not."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@dataclass
class Stream:
    """Does what was queued when it is waited for."""

    number: int
    queued: deque[Work] = field(default_factory=deque)
    waits: int = 0

    def synchronize(self) -> None:
        self.waits += 1
        while self.queued:
            self.queued.popleft()()


class Event:
    """Its stream's work so far; `times`: milliseconds between pairs of them, in order."""

    times: Iterator[float]

    def __init__(self, enable_timing: bool = False) -> None:
        self.stream: Stream | None = None

    def record(self, stream: Stream) -> None:
        self.stream = stream

    def synchronize(self) -> None:
        assert self.stream is not None, "waited for before it was recorded"
        self.stream.synchronize()

    def query(self) -> bool:
        return not (self.stream and self.stream.queued)

    def elapsed_time(self, later: Event) -> float:
        assert self.stream is later.stream is not None
        return next(self.times)


@dataclass
class Cuda:
    """What was asked of torch.cuda: the stream that is taken, threads whose handles were made, captures' options."""

    streams: list[Stream] = field(default_factory=list)
    taken: Stream | None = None
    handles: list[tuple[str, Stream | None]] = field(default_factory=list)
    captures: list[dict[str, Any]] = field(default_factory=list)
    capturing: int = 0

    def stream(self, device: object) -> Stream:
        self.streams.append(Stream(len(self.streams)))
        return self.streams[-1]

    @contextlib.contextmanager
    def take(self, stream: Stream) -> Iterator[None]:
        before, self.taken = self.taken, stream
        yield
        self.taken = before

    @contextlib.contextmanager
    def graph(self, graph: object, **options: Any) -> Iterator[None]:
        self.captures.append(options)
        self.capturing += 1
        assert self.capturing == 1, "two captures at once"
        yield
        self.capturing -= 1

    def make_handle(self) -> None:
        assert not self.capturing, "what may wait for the device, while something is captured"
        self.handles.append((threading.current_thread().name, self.taken))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    pools = iter(range(9))
    for name, stand_in in {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "graph_pool_handle": lambda: next(pools),
        "Stream": made.stream,
        "Event": Event,
        "stream": made.take,
        "device": lambda device: contextlib.nullcontext(),
        "current_blas_handle": made.make_handle,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": made.graph,
        "max_memory_reserved": lambda device: 7000,
        "max_memory_allocated": lambda device: 5000,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return made


@pytest.fixture
def late_copies(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stream], None]:
    """Has copies that nobody waits for done when the stream is waited for."""
    copy = Tensor.copy_

    def begin(stream: Stream) -> None:
        def queue(into: Tensor, of: Tensor, non_blocking: bool = False) -> Tensor:
            if not non_blocking:
                return copy(into, of)
            stream.queued.append(lambda: copy(into, of))
            return into

        monkeypatch.setattr(Tensor, "copy_", queue)

    return begin


def test_work_is_queued_on_the_places_stream_by_threads_that_have_handles(cuda: Cuda) -> None:
    torch_device = CudaTorchDevice(torch.bfloat16)

    def work() -> None:
        for _ in range(2):
            with torch_device.use():
                assert cuda.taken is torch_device.stream and not torch.is_grad_enabled()
        assert cuda.taken is None

    work()
    with ThreadPoolExecutor(1, "other") as other:
        other.submit(work).result()
    stream: Any = torch_device.stream
    assert cuda.handles == [(threading.current_thread().name, stream), ("other_0", stream)]


def test_gpu_that_is_lost_is_said_as_such(cuda: Cuda) -> None:
    with pytest.raises(DeviceLostError, match="lost to this process; found CUDA error: an illegal memory access"):
        with CudaTorchDevice(torch.bfloat16).use():
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nmore words")


def test_what_is_received_has_arrived(
    cuda: Cuda, late_copies: Callable[[Stream], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_device = CudaTorchDevice(torch.float32)
    monkeypatch.setattr(CudaTorchDevice, "pinned", TorchDevice.pinned)
    late_copies(torch_device.stream)  # type: ignore[arg-type]
    for number in (1.0, 2.0):
        assert torch_device.to_host(torch.full((2, 3), number)).tolist() == [[number] * 3] * 2


def test_mark_is_waited_for_on_the_places_stream(cuda: Cuda) -> None:
    torch_device, done = CudaTorchDevice(torch.float32), list[str]()
    stream = cuda.streams[0]
    stream.queued.append(lambda: done.append("work"))
    mark = torch_device.mark()
    assert not done
    torch_device.wait(mark)
    assert done == ["work"]


def test_place_beside_another_has_a_stream_of_its_own_and_begins_when_the_other_is_done(cuda: Cuda) -> None:
    torch_device, done = CudaTorchDevice(torch.float16, captures=False), list[str]()
    cuda.streams[0].queued.append(lambda: done.append("weights are there"))
    other = torch_device.on_side_stream()
    assert done and other.stream is not torch_device.stream
    assert (other.dtype, other.captures) == (torch.float16, False)


def test_captures_of_a_place_share_its_pool_and_none_meets_another_or_a_new_thread(cuda: Cuda) -> None:
    torch_device = CudaTorchDevice(torch.bfloat16)
    on_side_stream = torch_device.on_side_stream()

    def capture(where: CudaTorchDevice, work: Work = lambda: None) -> None:
        with where.use():
            where.capture(work)

    def enter(where: CudaTorchDevice) -> None:
        with where.use():
            pass

    with ThreadPoolExecutor(2, "other") as others:

        def meanwhile() -> None:
            for asked in (others.submit(capture, on_side_stream), others.submit(enter, on_side_stream)):
                with pytest.raises(NotYet):
                    asked.result(SOON_S)

        capture(torch_device, meanwhile)
    capture(torch_device)
    first, second, again = cuda.captures
    # Another thread may copy frames out while something is captured.
    assert {options["capture_error_mode"] for options in cuda.captures} == {"thread_local"}
    assert first == again and first["stream"] is torch_device.stream
    assert second["stream"] is on_side_stream.stream and second["pool"] != first["pool"]


def test_time_of_work_is_the_one_in_the_middle_without_the_first(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    times, runs = [100.0, 9.0, 1.0, 2.0, 8.0, 3.0], list[int]()
    assert len(times) == TIMED_RUNS
    Event.times = iter(times)
    assert CudaTorchDevice(torch.float32).milliseconds(lambda: runs.append(1)) == 3.0
    ticks = iter([tick for time in times for tick in (0.0, time / 1000)])
    monkeypatch.setattr(place_module.time, "perf_counter", lambda: next(ticks))
    assert TorchDevice().milliseconds(lambda: runs.append(1)) == pytest.approx(3.0)
    assert len(runs) == 2 * TIMED_RUNS


def test_type_on_a_gpu_is_bfloat16_where_it_has_it_and_products_are_checked_first(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[tuple[int, int], torch.dtype] = {}
    for capability in ((7, 5), (8, 0), (9, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, its=capability: its)
        torch_device = backend.open_device("cuda", None, captures=False)
        assert not torch_device.captures
        opened[capability] = torch_device.dtype
    assert opened == {(7, 5): torch.float16, (8, 0): torch.bfloat16, (9, 0): torch.bfloat16}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 6))
    assert backend.open_device("cuda", "int8", captures=True).dtype == torch.bfloat16
    with pytest.raises(BackendError, match="no FP8 products; found sm_86"):
        backend.open_device("cuda", "fp8", captures=True)


class Apart(TapeDevice):
    """A place that has another beside it, and a memory that is measured."""

    memory = CudaTorchDevice.memory

    def __init__(self) -> None:
        super().__init__()
        self.other = TapeDevice()

    def on_side_stream(self) -> TorchDevice:
        return self.other


GEOMETRY = Geometry(height=16, width=24, latent_height=4, latent_width=6, shot_width=32)
LONGER = build_plan(even_timesteps(7))


@pytest.mark.parametrize("graphs", ["step", "turn"])
def test_parts_play_every_plan_and_prompts_are_read_beside(
    graphs: backend.Graphs, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "CudaTorchDevice", Apart)
    torch_device, (predictor, denoiser, encoder, decoder) = Apart(), networks()
    made = backend.Models(predictor, denoiser, decoder, encoder.unconditional())
    part = backend.build_engines(torch_device, made, GEOMETRY, [PLAN, LONGER], graphs)
    for plan in (LONGER, PLAN):
        turn = Turn(plan=plan)
        close(turn.latents(part)[0], turn.latents(engines(plan=plan))[0])
    parts: Any = part
    assert parts.denoiser.table_rows.keys() == {step.timestep for plan in (PLAN, LONGER) for step in plan}
    assert (
        parts.predictor.torch_device is torch_device.other
        and parts.denoiser.torch_device is parts.vae.torch_device is torch_device
    )
    assert part.memory is not None
    held = part.memory()
    assert (held.peak_bytes, held.allocated_bytes) == (7000, 5000)


class Late(TapeDevice):
    """Once `late`, graphs and the copies before them wait until somebody waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.late, self.stream, self.most, self.steps = False, Stream(0), 0, 0

    def capture(self, work: Work) -> Work:
        replay = super().capture(work)

        def queue() -> None:
            if not self.late:
                return replay()
            self.steps += 1
            self.most = max(self.most, self.steps)
            self.stream.queued.append(lambda: (replay(), setattr(self, "steps", self.steps - 1)))
            return None

        return queue

    def to_device(self, array: npt.NDArray[np.generic]) -> Tensor:
        self.stream.synchronize()  # as a copy from memory that is not pinned does
        return super().to_device(array)

    def to_host(self, tensor: Tensor) -> Tensor:
        self.stream.synchronize()
        return super().to_host(tensor)

    def mark(self) -> object:
        passed: list[bool] = []
        self.stream.queued.append(lambda: passed.append(True))
        return passed

    def wait(self, mark: object) -> None:
        while not mark:
            self.stream.queued.popleft()()


@pytest.mark.parametrize("whole_turns", [0, len(PLAN)])
def test_host_that_runs_ahead_of_the_device_writes_over_nothing(
    whole_turns: int, late_copies: Callable[[Stream], None]
) -> None:
    torch_device = Late()
    part, turns = engines(torch_device, whole_turns), [Turn(scope) for scope in (2.5, 15.0, 40.0)]
    for _ in range(2):
        turns[0].latents(part)
    expected = [turn.latents(engines())[0] for turn in turns]
    late_copies(torch_device.stream)
    torch_device.late = True
    for turn, latent in zip(turns, expected, strict=True):
        np.testing.assert_array_equal(turn.latents(part)[0], latent)
    # One step is filled in while one runs, and no more are ever waiting.
    assert torch_device.most == (1 if whole_turns else 2)


def test_turn_after_one_whose_numbers_were_lost_is_whole() -> None:
    part, turn, lost = engines(), Turn(), Turn()
    lost.noises = [np.full(SHAPE, np.nan, np.float32) for _ in PLAN]
    assert np.isnan(lost.latents(part)[0]).all()
    np.testing.assert_array_equal(turn.latents(part)[0], turn.latents(engines())[0])
