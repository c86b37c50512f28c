"""torch.cuda made of the CPU, for a process of its own: `install()` and all that asks for a GPU is given host memory.

Streams run at once, graphs are tapes (`torch_tape`), and a device named cuda becomes the CPU where tensors are made. It
shows that what is written for a GPU alone runs to its end; that tensors of both sides never meet is shown by
tests/runtime/backends/test_torch_device.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import half_products
import torch
from torch.overrides import TorchFunctionMode
from torch_tape import Tape

MEMORY = 64 * 2**30
MEMORY_TAKEN = ("memory_reserved", "memory_allocated", "max_memory_reserved", "max_memory_allocated")
NOTHING = (
    "synchronize",
    "empty_cache",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
    "current_blas_handle",
)


class OnTheCpu(TorchFunctionMode):
    """Whatever is made for a GPU is made on the CPU, and memory is pinned nowhere; products are summed in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {name: on_cpu(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        return half_products.call(func, tuple(map(on_cpu, args)), given)


def on_cpu(value: Any) -> Any:
    """A device, or its name, that is no GPU; anything else as it is."""
    named = value.type if isinstance(value, torch.device) else value
    return torch.device("cpu") if isinstance(named, str) and named.partition(":")[0] == "cuda" else value


class Event:
    """Marks its own moment."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, stream: object = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing is late here."""

    def elapsed_time(self, later: Event) -> float:
        return 1000 * (later.at - self.at)


class Stream:
    """Everything on it was done when it was asked for."""

    cuda_stream = 0

    def __init__(self, device: object = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        pass


class CUDAGraph:
    """A tape."""

    tape: Tape

    def replay(self) -> None:
        self.tape.replay()


@contextlib.contextmanager
def graph(into: CUDAGraph, pool: object = None, stream: object = None, **mode: object) -> Iterator[None]:
    """Notes what is done inside, and undoes it."""
    into.tape = Tape()
    with into.tape:
        yield
    into.tape.undo()


@contextlib.contextmanager
def inside(what: object) -> Iterator[None]:
    """A stream or a device that is taken."""
    yield


def install(capability: tuple[int, int] = (9, 0)) -> None:
    """From now on this process has a GPU of that capability."""
    properties = {"name": "Fake", "total_memory": MEMORY, "major": capability[0], "minor": capability[1]}
    stand_ins: dict[str, Any] = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "current_stream": lambda device=None: Stream(),
        "get_device_capability": lambda device=None: capability,
        "get_device_name": lambda device=None: "Fake",
        "get_device_properties": lambda device=None: SimpleNamespace(**properties),
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "graph_pool_handle": lambda: (0, 0),
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        **dict.fromkeys(NOTHING, lambda *given: None),
        **dict.fromkeys(MEMORY_TAKEN, lambda device=None: 0),
        "CUDAGraph": CUDAGraph,
        "Event": Event,
        "Stream": Stream,
        "device": inside,
        "graph": graph,
        "stream": inside,
    }
    for name, stand_in in stand_ins.items():
        setattr(torch.cuda, name, stand_in)
    torch.version.cuda = "0.0"
    _generators()
    half_products.enter_everywhere(OnTheCpu)


def _generators() -> None:
    plain = torch.Generator

    class Generator(plain):  # type: ignore[misc, valid-type]  # the name stands in annotations, too
        def __new__(cls, device: Any = "cpu") -> Any:
            return plain(on_cpu(device))

    torch.Generator = Generator  # type: ignore[misc]
