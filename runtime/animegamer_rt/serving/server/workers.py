"""The worker processes of one server: one for each share of its cores or GPUs, or on the nodes of a Ray cluster.

Knows which of them serve; nothing of jobs. Each has a socket, a log and a count of deaths of its own, so one that dies
takes no other with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.serving.wire import Message

from .descriptors import KeptDescriptors
from .local_host import LocalHost
from .options import ServeOptions
from .ray_host import RayCluster, RayHost
from .sockets import ServerSockets
from .worker_process import WorkerHost, WorkerProcess
from .worker_shares import share_out, shortages, usable_cores, usable_gpus


class Workers:
    """All workers, by number from 1. Times are of the monotonic clock."""

    def __init__(self, processes: Sequence[WorkerProcess], cluster: RayCluster | None = None) -> None:
        self.all, self._cluster = tuple(processes), cluster

    @property
    def serving(self) -> list[WorkerProcess]:
        """Those that take jobs now."""
        return [worker for worker in self.all if worker.serving]

    @property
    def degraded(self) -> bool:
        """Whether turns cannot be expected to run soon: no worker can be started."""
        return all(worker.degraded for worker in self.all)

    @property
    def warm(self) -> bool:
        """Whether one has ever been ready."""
        return any(worker.warm for worker in self.all)

    @property
    def warmup_s(self) -> float:
        """Seconds of the turn that a worker played to warm up, the longest of all; 0 before one was ready."""
        return max(worker.warmup_s for worker in self.all)

    @property
    def engines(self) -> str | None:
        """What their engines are (`Engines.identity`), which is the same for all; None before one was ready."""
        return next((one.ready_info.engines for one in self.all if one.ready_info is not None), None)

    @property
    def last_error(self) -> str:
        """Why one died last; empty if none did."""
        return max(self.all, key=lambda worker: worker.failed_at).last_error

    def retry_in_s(self, now: float) -> float:
        """Seconds until a worker can take a job that was given back: 0 if one serves, else until the next start."""
        return 0.0 if self.serving else min(worker.retry_in_s(now) for worker in self.all)

    def open_logs(self) -> None:
        """Begin new logs. Raises StoreError when the state folder cannot be written."""
        for worker in self.all:
            worker.open_log()

    def watch(self, now: float) -> Iterator[tuple[WorkerProcess, str]]:
        """Start those whose time has come. Yields each that could not start, died or had to be ended, and why."""
        for worker in self.all:
            if (reason := worker.watch(now)) is not None:
                yield worker, reason

    def receive(self, now: float) -> Iterator[tuple[WorkerProcess, Message]]:
        """What they say about jobs."""
        for worker in self.all:
            for message in worker.receive(now):
                yield worker, message

    def stop(self) -> None:
        """End all: ask each first, then wait for them together."""
        for worker in self.all:
            worker.ask_to_stop()
        for worker in self.all:
            worker.stop()
        if self._cluster is not None:
            self._cluster.stop()


def open_workers(options: ServeOptions, bundle: Bundle, sockets: ServerSockets) -> tuple[Workers, list[str]]:
    """The workers that the options ask for, not yet started, and what they have to share, as sentences for the log.

    Raises ClusterError when the Ray cluster cannot be joined.
    """
    if options.ray is not None:
        assert sockets.worker_key is not None
        cluster = RayCluster(options)
        cluster.join()
        places = [
            RayHost(cluster, options, bundle, address, sockets.worker_key, number)
            for number, (_, address) in enumerate(sockets.workers, 1)
        ]
        return _with_sockets(options, bundle, sockets, places, cluster), []
    cores, gpus, device = usable_cores(), usable_gpus(), options.engines.device
    shares = share_out(options.workers, device, cores, gpus)
    descriptors = KeptDescriptors()
    hosts = [
        LocalHost(options, bundle, address, number, share, descriptors)
        for number, ((_, address), share) in enumerate(zip(sockets.workers, shares, strict=True), 1)
    ]
    count = len(cores) or os.cpu_count() or 1
    workers = _with_sockets(options, bundle, sockets, hosts)
    return workers, list(shortages(options.workers, device, count, len(gpus)))


def _with_sockets(
    options: ServeOptions,
    bundle: Bundle,
    sockets: ServerSockets,
    hosts: Sequence[WorkerHost],
    cluster: RayCluster | None = None,
) -> Workers:
    pairs = enumerate(zip(sockets.workers, hosts, strict=True), 1)
    processes = [
        WorkerProcess(options, bundle.fingerprint, socket, host, number) for number, ((socket, _), host) in pairs
    ]
    return Workers(processes, cluster)
