"""What each of several workers gets of the machine: its own cores, and a GPU where the engines run on one.

Knows the operating system's lists of both; nothing of turns. A single worker keeps all that the server may use.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.engine_config import GPU_DEVICES

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """cores: numbers of those that the worker runs on; empty: all. threads: of it where cores cannot be given out.

    gpu: its CUDA_VISIBLE_DEVICES; None: the server's.
    """

    cores: tuple[int, ...] = ()
    threads: int | None = None
    gpu: str | None = None


EVERYTHING = WorkerShare()


def usable_cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may use; empty where the system gives out no cores (macOS, Windows)."""
    if sys.platform == "linux":
        return tuple(sorted(os.sched_getaffinity(0)))
    return ()


def usable_gpus(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, else all of this machine (Linux), as that variable spells them."""
    named = environment.get(VISIBLE_GPUS)
    if named is not None:
        return tuple(one.strip() for one in named.split(",") if one.strip())
    found = [path for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return tuple(str(number) for number in range(len(found)))


def share_out(workers: int, device: str, cores: tuple[int, ...], gpus: tuple[str, ...]) -> list[WorkerShare]:
    """A share for each worker: cores in neighbouring ranges, GPUs one after the other; shared where there are fewer."""
    if workers == 1:
        return [EVERYTHING]
    count = len(cores)
    if count >= workers:
        ranges = [cores[count * one // workers : count * (one + 1) // workers] for one in range(workers)]
    else:
        ranges = [cores[one % count : one % count + 1] if count else () for one in range(workers)]
    threads = None if cores else max(1, (os.cpu_count() or 1) // workers)
    on_gpu = gpus if device in GPU_DEVICES else ()
    return [
        WorkerShare(own, threads, on_gpu[number % len(on_gpu)] if on_gpu else None) for number, own in enumerate(ranges)
    ]


def shortages(workers: int, device: str, cores: int, gpus: int) -> Iterator[str]:
    """What workers have to share, as sentences for the log."""
    if workers == 1:
        return
    if workers > cores:
        yield f"--workers {workers} on {cores} cores: workers share cores, and play no more turns a second than {cores}"
    if device in GPU_DEVICES and gpus == 0:
        yield f"no GPUs could be counted: all {workers} workers use the same one; set {VISIBLE_GPUS} to share them out"
    elif device in GPU_DEVICES and workers > gpus:
        yield f"--workers {workers} on {gpus} GPUs: workers share GPUs, and each needs memory for its own networks"


@contextlib.contextmanager
def running_on(cores: tuple[int, ...]) -> Iterator[None]:
    """Within, this thread, and a process that it starts, runs on these cores; on its own again afterwards."""
    if sys.platform != "linux" or not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:  # a core was taken away from the server
        log.warning("a worker cannot be given cores %s: %s; it uses any", cores, error.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)
