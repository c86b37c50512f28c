"""Watches what else a machine does while something is measured: other programs, stolen time, sleep, a slowed GPU.

Knows the counters of Linux; elsewhere what is not told is None. Knows nothing of what is measured.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from .host import read_system_file
from .nvml import NvmlDevice

Own = TypeVar("Own", bound="Sampler")
TICKS = 100.0
"""Counts of /proc/stat in a second, on every Linux that Python runs on (USER_HZ)."""
PERIOD_S = 5.0
"""Seconds between two readings."""
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
    throttled: tuple[str, ...] = ()


class Sampler(ABC):
    """Inside `with`, a thread calls `sample` every `period_s` seconds, which it may change. None is left after it."""

    def __init__(self, period_s: float, name: str) -> None:
        self.period_s, self._name = period_s, name

    @abstractmethod
    def sample(self) -> None:
        """Take one sample."""

    def __enter__(self: Own) -> Own:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    return {
        "seconds": round(awake, 1),
        "others_share": _share(others, total),
        "stolen_share": _share(stolen, total),
        "throttled": sorted({reason for one in readings for reason in one.throttled}),
        "asleep_seconds": None if through is None else round(max(0.0, through - awake), 1),
    }


def reader(card: NvmlDevice | None) -> Callable[[], Reading]:
    """A function that reads the machine and the card; None: the machine alone."""
    if card is None:
        return read_machine
    return lambda: replace(read_machine(), throttled=card.throttled())


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
    )


def _change(first: Reading, last: Reading, name: str) -> float | None:
    before, after = getattr(first, name), getattr(last, name)
    return None if before is None or after is None else float(after - before)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else round(part / whole, 3)
