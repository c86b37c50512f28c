"""An NVIDIA GPU through NVML: name, driver, clocks, temperature, power limit, power, energy, memory.

Knows the library `pynvml` (nvidia-ml-py), imported when a GPU is opened; nothing of what runs on the GPU. A figure that
the GPU does not report is None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any

import psutil

INSTALL = "pip install nvidia-ml-py"
NAMED = 3
"""So many other programs are named, those with the most memory first."""
THROTTLE_REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x4: "power cap",
        0x8: "hardware slowdown",
        0x20: "thermal, by the driver",
        0x40: "thermal, by the hardware",
        0x80: "power brake",
    }
)
"""Bits of NVML's clocks event reasons (nvmlClocksEventReason*) -> what slows the clocks. Idle and settings are none."""


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

    def facts(self) -> dict[str, str | int | float | None]:
        """The GPU now: clocks in MHz, temperature in degrees Celsius, power limit in watts."""
        nvml = self._nvml
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "driver": self._driver(),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "power_limit_w": _thousandth(self._ask("nvmlDeviceGetEnforcedPowerLimit")),
        }

    def throttled(self) -> tuple[str, ...]:
        """Why the GPU runs below its clock now; empty if it does not, or does not tell."""
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)

    def joules(self) -> float | None:
        """Energy in joules since the driver was loaded, by the GPU's counter; GPUs before Volta have none."""
        return _thousandth(self._ask("nvmlDeviceGetTotalEnergyConsumption"))

    def used_bytes(self) -> int | None:
        """Bytes in use now, by all programs and the driver."""
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)

    def programs(self) -> str:
        """The other programs that compute on the GPU and the memory of each, in words; empty if there are none."""
        running = self._ask("nvmlDeviceGetComputeRunningProcesses") or ()
        others = [(process.usedGpuMemory or 0, process.pid) for process in running if process.pid != os.getpid()]
        words = [f"{_program(pid)}" + (f" ({held / 2**30:.1f} GiB)" if held else "") for held, pid in sorted(others)]
        more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
        return f"other programs use it: {', '.join(words[::-1][:NAMED])}{more}" if words else ""

    def watts(self) -> float | None:
        """Power now, in watts."""
        return _thousandth(self._ask("nvmlDeviceGetPowerUsage"))

    def _driver(self) -> str | None:
        try:
            return str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None


class EnergyMeter:
    """Use as `with meter: work()`; then `joules` is what the card drew by its counter, and `source` says so.

    Without a card or a counter, `joules` is None and `source` says why: it is never an estimate. The counter covers
    the whole card, whatever else runs there; every card since Volta has one.
    """

    def __init__(self, card: NvmlDevice | None, why_not: str = "processors are not asked for theirs") -> None:
        self._read = card.joules if card is not None else lambda: None
        self.joules: float | None = None
        self.source = "NVML's energy counter of the card"
        if self._read() is None:
            self.source = f"not measured: {why_not or 'NVML has no energy counter of this card'}"

    def __enter__(self) -> EnergyMeter:
        self._before = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after = self._read()
        self.joules = None if after is None or self._before is None else after - self._before


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


def _thousandth(value: int | None) -> float | None:
    """NVML counts milliwatts and millijoules."""
    return None if value is None else value / 1000
