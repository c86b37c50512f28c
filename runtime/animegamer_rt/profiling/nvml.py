"""NVIDIA GPUs through NVML: which there are, and the other programs on one.

Knows the library `pynvml` (nvidia-ml-py), imported when a GPU is opened; nothing of what runs on the GPU.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import psutil

INSTALL = "pip install nvidia-ml-py"
NAMED = 3
"""So many other programs are named, those with the most memory first."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its driver describes it; memory in MiB, arch as in sm89. programs: the others that use it, in words."""

    name: str
    total_mib: int
    free_mib: int
    driver: str
    arch: str
    programs: str = ""


class NvmlDevice:
    """One GPU. Its figures cover all programs that use it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of a function of the library, for this GPU unless it is of the system; None where it has none."""
        of = () if name.startswith("nvmlSystem") else (self._handle,)
        try:
            return getattr(self._nvml, name)(*of, *arguments)
        except self._nvml.NVMLError:
            return None

    def programs(self) -> str:
        """The other programs that compute on the GPU and the memory of each, in words; empty if there are none."""
        running = self.ask("nvmlDeviceGetComputeRunningProcesses") or ()
        others = [(process.usedGpuMemory or 0, process.pid) for process in running if process.pid != os.getpid()]
        words = [f"{_program(pid)}" + (f" ({held / 2**30:.1f} GiB)" if held else "") for held, pid in sorted(others)]
        more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
        return f"other programs use it: {', '.join(words[::-1][:NAMED])}{more}" if words else ""


def open_nvml(uuid: str | None = None) -> tuple[NvmlDevice | None, str]:
    """The GPU that playing uses, or None and the reason: no library, no driver, or several GPUs to choose from.

    uuid: the GPU's (`GPU-...`), if the backend knows it.
    """
    nvml, why_not = _library()
    if nvml is None:
        return None, why_not
    try:
        handle = _handle(nvml, uuid)
    except nvml.NVMLError as error:
        return None, f"the NVIDIA driver knows no such GPU ({error})"
    if handle is None:
        return None, "several GPUs, and CUDA_VISIBLE_DEVICES does not name one by its UUID (nvidia-smi -L)"
    return NvmlDevice(nvml, handle), ""


def gpus() -> tuple[list[Gpu], str]:
    """The NVIDIA GPUs that the driver lists, and the reason where there is none."""
    nvml, why = _library()
    if nvml is None:
        return [], why
    found, why = [], "the NVIDIA driver lists none"
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory, arch = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetCudaComputeCapability(handle)
            mib = (memory.total // 2**20, memory.free // 2**20)
            driver, others = nvml.nvmlSystemGetDriverVersion(), NvmlDevice(nvml, handle).programs()
            found.append(Gpu(nvml.nvmlDeviceGetName(handle), *mib, driver, "sm{}{}".format(*arch), others))
        except nvml.NVMLError as error:
            why = f"the NVIDIA driver does not say what a GPU has ({error})"
    return found, "" if found else why


def _library() -> tuple[Any, str]:
    """The library with the driver's answer to it; None and the reason without one of them."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None, f"pynvml is not installed ({INSTALL})"
    try:
        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return None, f"no NVIDIA driver ({error})"
    return pynvml, ""


def _handle(nvml: Any, uuid: str | None) -> Any:
    """Handle of the only GPU, or of the one named by UUID: CUDA and NVML may order several differently."""
    if nvml.nvmlDeviceGetCount() == 1:
        return nvml.nvmlDeviceGetHandleByIndex(0)
    first = uuid or os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    return nvml.nvmlDeviceGetHandleByUUID(first) if first.startswith("GPU-") else None


def _program(pid: int) -> str:
    """A program's name and process number; a container may not see it."""
    try:
        return f"{psutil.Process(pid).name()}, process {pid}"
    except psutil.Error:
        return f"process {pid}"
