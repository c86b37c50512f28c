"""The machine's facts, its GPU's power, and other load during a measurement.

Uses the counters of the system and NVML. Unavailable facts are None.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distributions
from importlib.metadata import requires as requirements
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import psutil

from animegamer_rt.profiling.host import available_cores, instruction_sets, read_system_file
from animegamer_rt.profiling.nvml import NvmlDevice, open_nvml

Own = TypeVar("Own", bound="Sampler")
PERIOD_S = 5.0
"""Seconds between two readings."""
ALONE_S = 1.0
"""Seconds to watch before and after, while this program only waits."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ENGINE_LIBRARIES = frozenset(
    {"cuda-python", "numpy", "nvidia-ml-py", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt-rtx-cu13", "torch"}
)
"""Libraries that run networks, installed or not."""
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
SM_CLOCK, MEMORY_CLOCK, GPU_TEMPERATURE = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM and NVML_TEMPERATURE_GPU."""
THROTTLE_REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x4: "power cap",
        0x8: "hardware slowdown",
        0x20: "thermal, by the driver",
        0x40: "thermal, by the hardware",
        0x80: "power brake",
    }
)
"""Bits of NVML's clocks event reasons (nvmlClocksEventReason*) -> cause of throttling, without idle and settings."""


def machine_facts() -> dict[str, Any]:
    """Fields of a record."""
    return {
        "command_line": command_line(sys.argv),
        "instruction_sets": instruction_sets(),
        "threads": {
            "cores": available_cores(),
            **{name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        },
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "ram_mib": psutil.virtual_memory().total // 2**20,
        "governor": read_system_file(GOVERNOR).strip() or None,
        "packages": packages(),
    }


def command_line(argv: Sequence[str]) -> str:
    """The command as typed, without the program's folder, which may name a person."""
    return shlex.join(["animegamer-rt", *argv[1:]])


def packages() -> dict[str, str]:
    """Versions of the libraries that playing needs or can use."""
    versions = {one.metadata["Name"].lower(): one.version for one in distributions() if one.metadata["Name"]}
    try:
        needs = [need for need in requirements("animegamer-rt") or () if "extra ==" not in need]
    except PackageNotFoundError:
        needs = []
    named = {re.split(r"[^A-Za-z0-9_.-]", need)[0].lower() for need in needs} | ENGINE_LIBRARIES
    return {name: versions[name] for name in sorted(named) if name in versions}


class Card:
    """One GPU. Its figures include all programs on it."""

    def __init__(self, device: NvmlDevice) -> None:
        self._ask = device.ask

    def facts(self) -> dict[str, str | int | float | None]:
        """The GPU's current clocks in MHz, temperature in degrees Celsius, power limit in watts."""
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "driver": self._ask("nvmlSystemGetDriverVersion"),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", SM_CLOCK),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", MEMORY_CLOCK),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", GPU_TEMPERATURE),
            "power_limit_w": _thousandth(self._ask("nvmlDeviceGetEnforcedPowerLimit")),
        }

    def throttled(self) -> tuple[str, ...]:
        """Why the GPU is throttled now; empty if it is not, or if unknown."""
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)

    def used_bytes(self) -> int | None:
        """Bytes in use now, by all programs and the driver."""
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return None if memory is None else int(memory.used)


def open_card(uuid: str | None = None) -> Card | None:
    """The GPU used for playing; None if NVML cannot tell which, or reports nothing (`open_nvml`)."""
    device, _ = open_nvml(uuid)
    return None if device is None else Card(device)


def _thousandth(value: int | None) -> float | None:
    """NVML counts milliwatts."""
    return None if value is None else value / 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine's state at one time. Times in seconds since some fixed time; None: the system does not say.

    at: on a clock that stops while the machine sleeps; awake_or_not: on one that does not. processors: total seconds of
    all processors; busy: used by any program; stolen: by other machines on the host; own: by this process. throttled:
    throttling reasons, in NVML's terms.
    """

    at: float
    own: float
    processors: float
    busy: float
    stolen: float
    awake_or_not: float | None = None
    throttled: tuple[str, ...] = ()


class Sampler(ABC):
    """Inside `with`, a thread calls `sample` every `period_s` seconds, which may be changed. It ends with the block."""

    def __init__(self, period_s: float, name: str) -> None:
        self.period_s, self._name = period_s, name

    @abstractmethod
    def sample(self) -> None:
        """Takes one sample."""

    def __enter__(self: Own) -> Own:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self.period_s):
            self.sample()


class Watch(Sampler):
    """Use as `with watch: work()`; then `readings` has one from its start, one from its end, and some between."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        super().__init__(PERIOD_S, "activity")
        self._read, self.readings = read, list[Reading]()

    def sample(self) -> None:
        """Adds a reading."""
        self.readings.append(self._read())

    def __enter__(self) -> Watch:
        self.readings = [self._read()]
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.sample()


def watch_alone(read: Callable[[], Reading]) -> dict[str, Any]:
    """`describe` of ALONE_S seconds in which this program only waits."""
    before = read()
    time.sleep(ALONE_S)
    return describe([before, read()])


def describe(readings: Sequence[Reading]) -> dict[str, Any]:
    """Record fields of a watched period. readings: at least two, oldest first.

    Shares are of all processors' time: `others_share` of other programs, `stolen_share` of other machines on the host.
    """
    first, last = readings[0], readings[-1]
    total, awake, slept = last.processors - first.processors, last.at - first.at, None
    if first.awake_or_not is not None and last.awake_or_not is not None:
        slept = round(max(0.0, last.awake_or_not - first.awake_or_not - awake), 1)
    return {
        "seconds": round(awake, 1),
        "others_share": _share(max(0.0, last.busy - first.busy - (last.own - first.own)), total),
        "stolen_share": _share(last.stolen - first.stolen, total),
        "throttled": sorted({reason for one in readings for reason in one.throttled}),
        "asleep_seconds": slept,
    }


def reader(card: Card | None) -> Callable[[], Reading]:
    """A function that reads the machine and the card; None: the machine only."""
    if card is None:
        return read_machine
    return lambda: replace(read_machine(), throttled=card.throttled())


def read_machine() -> Reading:
    """The machine's current state."""
    times = psutil.cpu_times()._asdict()
    processors = sum(seconds for name, seconds in times.items() if not name.startswith("guest"))  # part of user
    idle, stolen = times["idle"] + times.get("iowait", 0.0), times.get("steal", 0.0)
    boot: float | None = None
    if sys.platform == "linux":
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Reading(
        at=time.monotonic(),
        own=time.process_time(),
        awake_or_not=boot,
        processors=processors,
        busy=processors - idle - stolen,
        stolen=stolen,
    )


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole else None
