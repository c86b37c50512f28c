"""Starts workers on the nodes of a Ray cluster, through one process that talks to Ray (`serving.cluster`).

Ray kills a process that uses it when the cluster's head dies. So the server itself does not use Ray; it restarts that
process with the next worker.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import logging
import re
import socket as tcp
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import GPU_DEVICES, ONNXRUNTIME_DEVICES, EngineConfig
from animegamer_rt.errors import ClusterError, ConfigError
from animegamer_rt.profiling.child_process import child_command
from animegamer_rt.serving.cluster.node import NodeJob
from animegamer_rt.version import __version__

from .local_host import RunningWorker, WorkerHost, begin_log, open_log, own_group, worker_name
from .options import ServeOptions

REACH_S = 5.0
STOP_S = 10.0
"""How long Ray may take to end its actors when the server stops."""

log = logging.getLogger(__name__)


def own_address(address: str) -> str:
    """This machine's address in the network of a Ray cluster, where the nodes reach the server.

    Raises ConfigError without the package or for a malformed address; ClusterError if nothing answers.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed", where="--ray", do="run: pip install 'animegamer-rt[ray]'")
    found = re.fullmatch(r"(?:\[([^]]+)\]|([^:/]+)):(\d{1,5})", address)
    if found is None or not 0 < int(found[3]) < 65536:
        do = "give the address that `ray start --head` printed after --address="
        raise ConfigError("not a Ray cluster's address", where="--ray", found=address, expected="HOST:PORT", do=do)
    try:
        with tcp.create_connection((found[1] or found[2], int(found[3])), REACH_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise ClusterError(
            "no Ray cluster answers",
            where=f"--ray {address}",
            found=error.strerror or str(error),
            do="start one with: ray start --head, or give the address it printed",
        ) from error


class RayCluster:
    """The process that talks to Ray. `log_path`: the log of it, Ray and the workers."""

    def __init__(self, options: ServeOptions) -> None:
        assert options.ray is not None
        self._address, self.log_path = options.ray, options.state_dir / "ray.log"
        self._ids = itertools.count(1)
        self._ray: _RayProcess | None = None

    def join(self) -> None:
        """Start the process and wait until it has joined the cluster. Raises ClusterError."""
        begin_log(self.log_path)
        self._ray = process = self._start_process()
        process.answered.wait()
        if process.error is not None:
            process.stop()
            raise process.error
        log.info("joined the Ray cluster at %s", self._address)

    def start(self, job: dict[str, Any], name: str) -> RayWorker:
        """Request a worker. Raises OSError."""
        if self._ray is None or self._ray.over:
            self._ray = self._start_process()
        worker = RayWorker(self._ray, next(self._ids), name)
        self._ray.workers[worker.id] = worker
        self._ray.send({"id": worker.id, **job})
        return worker

    def stop(self) -> None:
        """End the process, and with it all remaining workers."""
        if self._ray is not None:
            self._ray.stop()

    def _start_process(self) -> _RayProcess:
        with open_log(self.log_path) as file:
            command = child_command("animegamer_rt.serving.cluster", self._address)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, **own_group()
            )
        return _RayProcess(process, self._address)


class _RayProcess:
    """That process until it ends; a thread reads its output. answered: it has joined, or failed to (`error`)."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self._process, self._address = process, address
        self.workers: dict[int, RayWorker] = {}
        self.answered, self.over = threading.Event(), False
        self.error: ClusterError | None = None
        threading.Thread(target=self._read, name="ray", daemon=True).start()

    def send(self, command: dict[str, Any]) -> None:
        """Send a command. Raises OSError if the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End the process; Ray then ends its actors."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        where = f"--ray {self._address}"
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if "error" in event:
                    self.error = ClusterError(event["error"], where=where, found=event["found"], do=event["do"])
                elif "joined" in event:
                    self.answered.set()
                elif (worker := self.workers.get(event["id"])) is not None:
                    worker.update(event)
        code = self._process.wait()
        if self.error is None:
            do = "check that the cluster runs (ray status), and read ray.log in the state folder"
            self.error = ClusterError("the connection to Ray was lost", where=where, found=f"exit code {code}", do=do)
        self.over = True
        for worker in list(self.workers.values()):
            worker.update({"ended": f"was lost: {self.error.what}; found exit code {code}"})
        self.answered.set()


class RayWorker(RunningWorker):
    """A requested worker and its state. Ray ends it when told to, or when the server's connection to Ray ends."""

    def __init__(self, process: _RayProcess, id: int, name: str) -> None:
        self._ray, self.id, self._name = process, id, name
        self.placed = False
        self._how: str | None = None

    def update(self, event: dict[str, Any]) -> None:
        """Process a line about it."""
        if "placed" in event:
            self.placed = True
            log.info("%s is on node %s", self._name, event["placed"])
        elif "waits" in event:
            do = "add one with: ray start --address=HOST:PORT, or use fewer --workers"
            log.warning("%s is waiting for a node with enough free cores or GPUs; %s", self._name, do)
        elif "ended" in event and self._how is None:
            self._how = event["ended"]

    def poll(self) -> str | None:
        """None while it runs."""
        return self._how

    def ended(self) -> str:
        """How it ended, as words that follow its name."""
        return self._how or ""

    def release(self) -> None:
        """Make Ray end it."""
        self._ray.workers.pop(self.id, None)
        with contextlib.suppress(OSError, ValueError):  # the process is gone, and all its workers with it
            self._ray.send({"kill": self.id})


class RayHost(WorkerHost):
    """A cluster, for worker `number`, which connects to `address` with the key `server_key`."""

    remote = True

    def __init__(
        self, cluster: RayCluster, options: ServeOptions, bundle: Bundle, address: str, server_key: bytes, number: int
    ) -> None:
        self._cluster, self.name = cluster, worker_name(options, number)
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        engines, cpus, gpus = resources(options.engines)
        self._needs = {"cpus": cpus, "gpus": gpus}
        self._job = NodeJob(
            host=host.strip("[]"),
            port=int(port),
            server_key=server_key.decode(),
            secret="",
            bundles=[str(bundle.folder), *([] if Path(options.bundle).exists() else [options.bundle])],
            fingerprint=bundle.fingerprint,
            version=__version__,
            arguments=[*engines.to_args(), *(["--plan", options.plan] if options.plan else [])],
        )

    def start(self, secret: str) -> RayWorker:
        """Request the worker. Raises OSError."""
        return self._cluster.start({**self._job, "secret": secret, **self._needs}, self.name)


def resources(engines: EngineConfig) -> tuple[EngineConfig, int, int]:
    """The engines as a node runs them, and the cores and GPUs that Ray reserves for them.

    On a GPU: one GPU and one core. Elsewhere: `--threads` cores, one by default.
    """
    if engines.device in GPU_DEVICES:
        return engines, 1, 1
    cpus = engines.threads or 1
    return (replace(engines, threads=cpus) if engines.device in ONNXRUNTIME_DEVICES else engines), cpus, 0
