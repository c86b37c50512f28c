"""A Ray cluster of several nodes on this machine, started by `ray start`: nodes are added, killed and drained.

Knows Ray's commands and processes; nothing of turns. The head has no cores, every other node has one.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from animegamer_rt.errors import ServerError

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
START_S, TRIES = 60.0, 3
"""Ray itself gives up after 15 s, which are too few on a busy machine."""


class LocalRayCluster:
    """A cluster inside `with`. address: HOST:PORT for `serve --ray`. nodes: Ray's ids of those that were added."""

    def __init__(self) -> None:
        # Ray's sockets are in it, and their paths must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="r"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        head = ("--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false")
        try:
            self._start(*head, "--num-cpus=0", "--disable-usage-stats")
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> LocalRayCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def add_node(self) -> str:
        """Start a node of one core; returns Ray's id of it. Raises ServerError with Ray's words if that fails."""
        process = self._start(f"--address={self.address}", "--num-cpus=1")
        words = [word for one in psutil.Process(process.pid).children(recursive=True) for word in one.cmdline()]
        id = str(next(word for word in words if word.startswith("--node_id="))).partition("=")[2]
        self.nodes[id] = process
        return id

    def kill_node(self, node: str) -> None:
        """SIGKILL all processes of a node, its actors and workers among them."""
        _kill_tree(self.nodes.pop(node))

    def drain(self, node: str) -> None:
        """Tell Ray that a node leaves within a minute."""
        reason = ("--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test", "--deadline-remaining-seconds=60")
        command = [*RAY, "drain-node", f"--address={self.address}", f"--node-id={node}", *reason]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def workers(self) -> list[Any]:
        """The processes that own engines, on all nodes."""
        return [worker for node in list(self.nodes) for worker in self.workers_on(node)]

    def workers_on(self, node: str) -> list[Any]:
        """Those on one node; none if it is gone."""
        process = self.nodes.get(node)
        return [] if process is None else workers_below(process.pid)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [*RAY, "start", "--block", "--object-store-memory=80000000", *options]
        for _ in range(TRIES):
            path = self._folder / f"{len(self._processes)}.log"
            with path.open("wb") as output:
                process = subprocess.Popen(
                    command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
                )
            self._processes.append(process)
            until = time.monotonic() + START_S
            while process.poll() is None and time.monotonic() < until:
                said = path.read_text(encoding="utf-8", errors="replace")
                if "Ray runtime started" in said:
                    return process
                time.sleep(0.1)
            _kill_tree(process)
        raise ServerError(
            "a node of Ray did not start", found=path.read_text(encoding="utf-8", errors="replace")[-1000:]
        )

    def _end(self) -> None:
        for process in self._processes:
            _kill_tree(process)
        shutil.rmtree(self._folder, ignore_errors=True)


def workers_below(pid: int) -> list[Any]:
    """The processes that own engines among the descendants of a process."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "animegamer_rt.serving.worker" in process.cmdline():
                    found.append(process)
    return found


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()
