"""Starts workers on the nodes of a Ray cluster, through one process that speaks to Ray (`serving.cluster`).

Knows that process's lines and what a worker needs of a node; nothing of what the worker says. Ray ends a process that
uses it when the cluster's head is gone, so the server itself does not: it starts that process again with the next
worker.
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

from .local_host import MAX_LOG_BYTES, begin_log, open_log, own_group, worker_name
from .options import ServeOptions

REACH_S = 5.0
STOP_S = 10.0
"""How long Ray may take to end its actors when the server stops."""

log = logging.getLogger(__name__)


def own_address(address: str) -> str:
    """This machine's own address in the network of a Ray cluster, where the nodes find the server.

    Raises ConfigError without the package, or for what is no address; ClusterError where nothing answers.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("Ray is not installed", where="--ray", do="run: pip install 'animegamer-rt[ray]'")
    found = re.fullmatch(r"(?:\[([^]]+)\]|([^:/]+)):(\d{1,5})", address)
    if found is None or not 0 < int(found[3]) < 65536:
        do = "give what `ray start --head` printed after --address="
        raise ConfigError("not a Ray cluster's address", where="--ray", found=address, expected="HOST:PORT", do=do)
    try:
        with tcp.create_connection((found[1] or found[2], int(found[3])), REACH_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise ClusterError(
            "no Ray cluster answers",
            where=f"--ray {address}",
            found=error.strerror or str(error),
            do="start one with: ray start --head, or give the address that it printed",
        ) from error


class RayCluster:
    """The process that speaks to Ray. `log_path`: what it, Ray and the workers write."""

    def __init__(self, options: ServeOptions) -> None:
        assert options.ray is not None
        self._address, self.log_path = options.ray, options.state_dir / "ray.log"
        self._ids = itertools.count(1)
        self._ray: _RayProcess | None = None

    def join(self) -> None:
        """Start it, and wait until it has joined the cluster. Raises ClusterError."""
        begin_log(self.log_path)
        self._ray = process = self._start_process()
        process.answered.wait()
        if process.error is not None:
            process.stop()
            raise process.error
        log.info("joined the Ray cluster at %s", self._address)

    def start(self, job: dict[str, Any], name: str) -> RayWorker:
        """Have a worker placed. Raises OSError."""
        if self._ray is None or self._ray.over:
            self._ray = self._start_process()
        worker = RayWorker(self._ray, next(self._ids), name)
        self._ray.workers[worker.id] = worker
        self._ray.send({"id": worker.id, **job})
        return worker

    def stop(self) -> None:
        """End it, and with it all workers that are left."""
        if self._ray is not None:
            self._ray.stop()

    def _start_process(self) -> _RayProcess:
        with open_log(self.log_path) as file:
            if file.tell() > MAX_LOG_BYTES:
                file.truncate(0)
            command = child_command("animegamer_rt.serving.cluster", self._address)
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, **own_group()
            )
        return _RayProcess(process, self._address)


class _RayProcess:
    """That process, until it ends: a thread reads what it says. answered: it has joined, or never will (`error`)."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self._process, self._address = process, address
        self.workers: dict[int, RayWorker] = {}
        self.answered, self.over = threading.Event(), False
        self.error: ClusterError | None = None
        threading.Thread(target=self._read, name="ray", daemon=True).start()

    def send(self, command: dict[str, Any]) -> None:
        """Send it a command. Raises OSError when it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it: Ray ends its actors then."""
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
                said = json.loads(line)
                if "error" in said:
                    self.error = ClusterError(said["error"], where=where, found=said["found"], do=said["do"])
                elif "joined" in said:
                    self.answered.set()
                elif (worker := self.workers.get(said["id"])) is not None:
                    worker.update(said)
        code = self._process.wait()
        if self.error is None:
            do = "see that the cluster runs (ray status), and read ray.log in the state folder"
            self.error = ClusterError("the connection to Ray was lost", where=where, found=f"exit code {code}", do=do)
        self.over = True
        for worker in list(self.workers.values()):
            worker.update({"ended": f"was lost: {self.error}"})
        self.answered.set()


class RayWorker:
    """A worker that was asked for, and what is known of it."""

    pid: int | None = None

    def __init__(self, process: _RayProcess, id: int, name: str) -> None:
        self._ray, self.id, self._name = process, id, name
        self.placed = self.leaving = False
        self._how: str | None = None

    def update(self, said: dict[str, Any]) -> None:
        """Note what was said of it."""
        if "placed" in said:
            self.placed = True
            log.info("%s is on node %s", self._name, said["placed"])
        elif "waits" in said:
            do = "add one with: ray start --address=HOST:PORT, or give fewer --workers"
            log.warning("%s waits for a node with enough free cores or GPUs; %s", self._name, do)
        elif "leaving" in said:
            self.leaving = True
        elif "ended" in said and self._how is None:
            self._how = said["ended"]

    def poll(self) -> str | None:
        """None while it runs."""
        return self._how

    def ended(self) -> str:
        """How it ended, in words that follow its name."""
        return self._how or ""

    def let_go(self) -> None:
        """Have Ray end it."""
        self._ray.workers.pop(self.id, None)
        with contextlib.suppress(OSError, ValueError):  # the process is gone, and with it all its workers
            self._ray.send({"kill": self.id})

    def kill(self) -> bool:
        """`let_go` has said it."""
        return True

    def wait(self, seconds: float) -> bool:
        """Nothing to wait for: Ray ends it when the server's connection to Ray ends, at the latest."""
        return True


class RayHost:
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

    def open_log(self) -> None:
        """All workers of the cluster have one log, which is open."""

    def start(self, secret: str, engines_before: str | None = None) -> RayWorker:
        """Have the worker placed. Raises OSError."""
        arguments = self._job["arguments"] + (["--engines-before", engines_before] if engines_before else [])
        return self._cluster.start({**self._job, "arguments": arguments, "secret": secret, **self._needs}, self.name)


def resources(engines: EngineConfig) -> tuple[EngineConfig, int, int]:
    """The engines as a node is to run them, and the cores and GPUs that Ray keeps for them.

    On a GPU: one GPU and one core. Elsewhere: `--threads` cores, one if that is not given.
    """
    if engines.device in GPU_DEVICES:
        return engines, 1, 1
    cpus = engines.threads or 1
    return (replace(engines, threads=cpus) if engines.device in ONNXRUNTIME_DEVICES else engines), cpus, 0
