"""Measures the energy of a piece of work by the machine's counters: NVML for a GPU, RAPL for a processor.

Knows counters and how to read them; nothing of the work. A counter covers the whole GPU or processor, whatever else
runs there. Without a counter the result is None with the reason, never an estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from .host import read_system_file
from .nvml import NvmlDevice
from .sampler import Sampler

POWERCAP = Path("/sys/class/powercap")
"""Where Linux has the RAPL counters of Intel's and AMD's processors."""
COUNTER_PERIOD_S = 10.0
"""The smallest RAPL counters wrap at 65 kJ, which 500 W reach in two minutes; this period never misses a wrap."""
POWER_PERIOD_S = 0.1
"""Seconds between two samples of a GPU's power; its driver averages over about as long."""

Reading = Callable[[], float | None]
"""Joules since some fixed time, or None when it cannot be read."""


class EnergyMeter(Sampler):
    """Use as `with meter: work()`; then `joules` is the energy or None, and `source` says how, or why not.

    period_s: how often the counter is read meanwhile, in seconds.
    """

    def __init__(self, read: Reading | None, source: str, period_s: float = COUNTER_PERIOD_S) -> None:
        super().__init__(period_s, "energy")
        self._read, self.source = read, source
        self.joules: float | None = None

    def sample(self) -> None:
        """Read the counter, if there is one."""
        if self._read is not None:
            self._readings.append(self._read())

    def __enter__(self) -> EnergyMeter:
        self._readings: list[float | None] = []
        self.sample()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.sample()
        known = [reading for reading in self._readings if reading is not None]
        if not self._readings:
            return
        if len(known) == len(self._readings):
            self.joules = known[-1] - known[0]
        else:
            self.source = f"not measured: {self.source} stopped answering"


def gpu_energy(card: NvmlDevice | None, why_not: str = "") -> EnergyMeter:
    """A GPU's energy counter, or its sampled power if it has no counter."""
    if card is None:
        return EnergyMeter(None, f"not measured: {why_not}")
    if card.joules() is not None:
        return EnergyMeter(card.joules, "NVML's energy counter of the card")
    if card.watts() is not None:
        return EnergyMeter(
            _Sampled(card.watts), f"NVML's power of the card, every {POWER_PERIOD_S:g} s", POWER_PERIOD_S
        )
    return EnergyMeter(None, "not measured: the card tells NVML neither energy nor power")


def cpu_energy(folder: Path = POWERCAP) -> EnergyMeter:
    """The sum of the RAPL counters of all processor packages."""
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _name(zone).startswith("package")]
    if not zones:
        return EnergyMeter(None, f"not measured: no RAPL counter of a processor in {folder}")
    try:
        packages = _Packages(zones)
    except (OSError, ValueError) as error:
        return EnergyMeter(None, f"not measured: a RAPL counter cannot be read ({error})")
    return EnergyMeter(packages, f"RAPL of {', '.join(map(_name, zones))}")


class _Packages:
    """The sum of RAPL counters in joules, with wraps counted."""

    def __init__(self, zones: Sequence[Path]) -> None:
        self._files = [zone / "energy_uj" for zone in zones]
        self._spans = [1 + int((zone / "max_energy_range_uj").read_text()) for zone in zones]
        self._last, self._total_uj = self._counters(), 0

    def __call__(self) -> float | None:
        try:
            now = self._counters()
        except (OSError, ValueError):
            return None
        steps = zip(now, self._last, self._spans, strict=True)
        self._total_uj += sum((new - old) % span for new, old, span in steps)
        self._last = now
        return self._total_uj / 1e6

    def _counters(self) -> list[int]:
        return [int(file.read_text()) for file in self._files]


class _Sampled:
    """Integrates power to joules by the trapezoidal rule."""

    def __init__(self, watts: Reading) -> None:
        self._watts = watts
        self._last: tuple[float, float] | None = None
        self._total = 0.0

    def __call__(self) -> float | None:
        watts, now = self._watts(), time.perf_counter()
        if watts is None:
            return None
        if self._last is not None:
            before, then = self._last
            self._total += (before + watts) / 2 * (now - then)
        self._last = watts, now
        return self._total


def _name(zone: Path) -> str:
    """Name of a RAPL zone: a package (package-0), a part of one (core, dram), or the whole platform (psys)."""
    return read_system_file(zone / "name").strip()
