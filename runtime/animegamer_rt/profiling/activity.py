"""Watches what else a machine does while something is measured: load, stolen time, other programs, clock, sleep.

Knows the counters of Linux; elsewhere what is not told is None. Knows nothing of what is measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from .host import read_system_file
from .nvml import NvmlDevice
from .sampler import Sampler

TICKS = 100.0
"""Counts of /proc/stat in a second, on every Linux that Python runs on (USER_HZ)."""
PERIOD_S = 5.0
"""Seconds between two readings of the clock and the load."""
ALONE_S = 1.0
"""Seconds that are watched before and after, while this program only waits."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The machine at one time. Times in seconds since some fixed time; None where the system does not tell.

    at: on a clock that stops while the machine sleeps; awake_or_not: on one that does not. processors: seconds that all
    processors together were there, worked or not; busy: worked for any program; stolen: worked for other machines of
    the same host; own: worked for this process. throttled: why a card runs below its clock, in NVML's words.
    """

    at: float
    own: float
    awake_or_not: float | None = None
    processors: float | None = None
    busy: float | None = None
    stolen: float | None = None
    load: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    card_clock_mhz: float | None = None
    card_temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


class Watch(Sampler):
    """Use as `with watch: work()`; then `readings` has one from its start, one from its end, and some between."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        super().__init__(PERIOD_S, "activity")
        self._read, self.readings = read, list[Reading]()

    def sample(self) -> None:
        """Add a reading."""
        self.readings.append(self._read())

    def __enter__(self) -> Watch:
        self.readings = [self._read()]
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.sample()


def watch_alone(read: Callable[[], Reading]) -> dict[str, Any]:
    """`describe` of ALONE_S seconds in which this program only waits."""
    before = read()
    time.sleep(ALONE_S)
    return describe([before, read()])


def describe(readings: Sequence[Reading]) -> dict[str, Any]:
    """Record fields of a time that was watched. readings: at least two, oldest first.

    Shares are of all processors' time: `others_share` of other programs, `stolen_share` of other machines on the host.
    """
    first, last = readings[0], readings[-1]
    total, busy, stolen = (_change(first, last, name) for name in ("processors", "busy", "stolen"))
    others = None if busy is None else max(0.0, busy - (last.own - first.own))
    through, awake = _change(first, last, "awake_or_not"), last.at - first.at
    loads = _known(readings, "load")
    found = {
        f"{name}_{end.__name__}": end(values, default=None)
        for name in ("clock_mhz", "temperature_c", "card_clock_mhz", "card_temperature_c")
        for values in [_known(readings, name)]
        for end in (min, max)
    }
    return {
        "seconds": round(awake, 1),
        "others_share": _share(others, total),
        "stolen_share": _share(stolen, total),
        "load_max": max(loads, default=None),
        **found,
        "throttled": sorted({reason for one in readings for reason in one.throttled}),
        "asleep_seconds": None if through is None else round(max(0.0, through - awake), 1),
    }


def reader(card: NvmlDevice | None) -> Callable[[], Reading]:
    """A function that reads the machine and the card; None: the machine alone."""
    if card is None:
        return read_machine

    def read() -> Reading:
        facts = card.facts()
        clock, temperature = facts["sm_clock_mhz"], facts["temperature_c"]
        return replace(
            read_machine(),
            card_clock_mhz=None if clock is None else float(clock),
            card_temperature_c=None if temperature is None else float(temperature),
            throttled=card.throttled(),
        )

    return read


def read_machine() -> Reading:
    """The machine now."""
    processors = busy = stolen = None
    counts = [int(word) for word in read_system_file(Path("/proc/stat")).partition("\n")[0].split()[1:]]
    if len(counts) >= 8:  # user, nice, system, idle, iowait, irq, softirq, steal; what follows is in user already
        processors, stolen = sum(counts[:8]) / TICKS, counts[7] / TICKS
        busy = processors - stolen - (counts[3] + counts[4]) / TICKS
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else None
    return Reading(
        at=time.monotonic(),
        own=time.process_time(),
        awake_or_not=boot,
        processors=processors,
        busy=busy,
        stolen=stolen,
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        clock_mhz=_clock(),
        temperature_c=_temperature(),
    )


def _clock() -> float | None:
    """Mean clock of the processors in MHz."""
    lines = read_system_file(Path("/proc/cpuinfo")).splitlines()
    clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    if not clocks:
        files = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        clocks = [float(text) / 1000 for text in map(read_system_file, files) if text.strip().isdigit()]
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def _temperature() -> float | None:
    texts = [read_system_file(zone).strip() for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    return max((int(text) / 1000 for text in texts if text.lstrip("-").isdigit()), default=None)


def _change(first: Reading, last: Reading, name: str) -> float | None:
    before, after = getattr(first, name), getattr(last, name)
    return None if before is None or after is None else float(after - before)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else round(part / whole, 3)


def _known(readings: Sequence[Reading], name: str) -> list[float]:
    return [value for one in readings if (value := getattr(one, name)) is not None]
