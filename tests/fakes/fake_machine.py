"""A machine with an NVIDIA GPU, as its driver, NVML and PyTorch describe it; no kernel runs on it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_nvml import FakeNvml

from animegamer_rt.diagnose import machine_checks

GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """driver: its version, empty where there is none. arch: the GPU's.

    torch_cuda: the CUDA that PyTorch was built for. start: what PyTorch says when CUDA does not start. code: CUDA's
    error of the first kernel.
    """

    driver: str = "590.48"
    arch: tuple[int, int] = (8, 9)
    free_bytes: int = 20 * GIB
    torch_cuda: str | None = "13.0"
    start: str = ""
    code: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        """Makes this process believe in it; `folder` gets what the installed PyTorch says of itself."""
        monkeypatch.setitem(sys.modules, "pynvml", _Nvml(self))
        monkeypatch.setattr(torch.version, "cuda", self.torch_cuda)
        (folder / "version.py").write_text(f"cuda: Optional[str] = {self.torch_cuda!r}\n", encoding="utf-8")
        find: Callable[..., Any] = importlib.util.find_spec
        spec = SimpleNamespace(origin=str(folder / "__init__.py"), submodule_search_locations=[str(folder)])
        monkeypatch.setattr(
            machine_checks.importlib.util, "find_spec", lambda name: spec if name == "torch" else find(name)
        )
        for name, stand_in in self._torch().items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        plain = torch.ones

        def ones(*shape: int, device: torch.device | None = None, **how: Any) -> torch.Tensor:
            if device is not None and self.code:
                raise cuda_error(self.code)
            return plain(*shape, **how)

        monkeypatch.setattr(torch, "ones", ones)

    def _torch(self) -> dict[str, Any]:
        def init() -> None:
            if self.start:
                raise RuntimeError(self.start)

        return {
            "is_available": lambda: bool(self.torch_cuda) and not self.start,
            "init": init,
            "current_device": lambda: 0,
            "get_device_capability": lambda device=None: self.arch,
            "get_device_properties": lambda device: SimpleNamespace(uuid="a"),
            "MemPool": lambda: SimpleNamespace(id=(0, 0)),
            "Stream": lambda *given: SimpleNamespace(synchronize=lambda: None),
            "stream": lambda stream: torch.no_grad(),
            "device": lambda device: torch.no_grad(),
            "current_blas_handle": lambda: 0,
            "mem_get_info": lambda device: (self.free_bytes, 24 * GIB),
            "memory_reserved": lambda device: 0,
            "memory_allocated": lambda device: 0,
            "get_per_process_memory_fraction": lambda device: 1.0,
        }


def cuda_error(code: int) -> torch.AcceleratorError:
    """PyTorch's error for a code of CUDA."""
    error = torch.AcceleratorError(f"CUDA error: number {code}\nmore lines")
    error.error_code = code
    return error


class _Nvml(FakeNvml):
    def __init__(self, machine: Machine) -> None:
        super().__init__(lacks=() if machine.driver else ("driver",))
        self._machine = machine

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._machine.driver

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return self._machine.arch

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=24 * GIB, free=self._machine.free_bytes)
