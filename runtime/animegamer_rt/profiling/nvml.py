"""NVIDIA GPUs through NVML. `pynvml` (nvidia-ml-py) is imported on first use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

INSTALL = "pip install nvidia-ml-py"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its driver describes it; memory in MiB, arch as in sm89."""

    name: str
    total_mib: int
    free_mib: int
    driver: str
    arch: str


class NvmlDevice:
    """One GPU. Its figures cover all programs that use it."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def ask(self, name: str, *arguments: Any) -> Any:
        """The result of an NVML function, for this GPU unless it is a system function; None if it is unsupported."""
        of = () if name.startswith("nvmlSystem") else (self._handle,)
        try:
            return getattr(self._nvml, name)(*of, *arguments)
        except self._nvml.NVMLError:
            return None


def open_nvml(uuid: str | None = None) -> tuple[NvmlDevice | None, str]:
    """The GPU used for playing, or None and the reason: no library, no driver, or several GPUs to choose from.

    uuid: the GPU's (`GPU-...`), if the backend knows it.
    """
    nvml, why_not = _library()
    if nvml is None:
        return None, why_not
    try:
        handle = _handle(nvml, uuid)
    except nvml.NVMLError as error:
        return None, f"the NVIDIA driver does not know this GPU ({error})"
    if handle is None:
        return None, "several GPUs, and CUDA_VISIBLE_DEVICES does not name one by its UUID (nvidia-smi -L)"
    return NvmlDevice(nvml, handle), ""


def gpus() -> tuple[list[Gpu], str]:
    """The NVIDIA GPUs that the driver lists, and the reason if there are none."""
    nvml, why = _library()
    if nvml is None:
        return [], why
    found, why = [], "the NVIDIA driver lists none"
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory, arch = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetCudaComputeCapability(handle)
            mib = (memory.total // 2**20, memory.free // 2**20)
            driver = nvml.nvmlSystemGetDriverVersion()
            found.append(Gpu(nvml.nvmlDeviceGetName(handle), *mib, driver, "sm{}{}".format(*arch)))
        except nvml.NVMLError as error:
            why = f"the NVIDIA driver cannot describe a GPU ({error})"
    return found, "" if found else why


def _library() -> tuple[Any, str]:
    """The library, initialised; None and the reason without library or driver."""
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
    """Handle of the only GPU, or of the one with this UUID: CUDA and NVML may order several differently."""
    if nvml.nvmlDeviceGetCount() == 1:
        return nvml.nvmlDeviceGetHandleByIndex(0)
    first = uuid or os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    return nvml.nvmlDeviceGetHandleByUUID(first) if first.startswith("GPU-") else None
