"""A Ray cluster of several nodes on this machine: Ray itself where it is installed, and a small one in its place.

Both have one core a node, and none on the node of the server.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

HAS_RAY = importlib.util.find_spec("ray") is not None
WITHOUT = "Ray is not installed: pip install 'animegamer-rt[ray]'"
FAKE_RAY = Path(__file__).parent / "fake_ray"


class FakeCluster:
    """tests/fakes/fake_ray in the place of Ray."""

    def __init__(self, folder: Path) -> None:
        self._file, self._number = folder / "cluster.json", 0
        self._described: dict[str, Any] = {"nodes": {}, "draining": [], "refused": ""}
        self._write()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.environment = {
            "FAKE_RAY": str(self._file),
            "PYTHONPATH": os.pathsep.join([str(FAKE_RAY), os.environ.get("PYTHONPATH", "")]),
        }

    def add_node(self) -> str:
        self._number += 1
        self._described["nodes"][f"node-{self._number}"] = 1
        self._write()
        return f"node-{self._number}"

    def kill_node(self, node: str) -> None:
        del self._described["nodes"][node]
        self._write()

    def drain(self, node: str) -> None:
        self._described["draining"].append(node)
        self._write()

    def workers(self, server: int) -> list[psutil.Process]:
        """The processes that own engines. server: its process id."""
        return workers_below(server)

    def refuse(self, text: str) -> None:
        """Joining fails with this error from now on."""
        self._described["refused"] = text
        self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._described))
        new.replace(self._file)

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()


RAY = [sys.executable, "-m", "ray.scripts.scripts"]
START_S = 180.0


class RealCluster:
    """Nodes started by `ray start`, all on this machine; the head has no cores. nodes: Ray's ids of those added."""

    def __init__(self, folder: Path) -> None:
        self.environment = dict[str, str]()
        # Ray's sockets are in it, and their paths must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="r"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        head = ("--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false")
        self._start(*head, "--num-cpus=0", "--disable-usage-stats")

    def __enter__(self) -> RealCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            _kill_tree(process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_node(self) -> str:
        """Start a node of one core; returns Ray's id of it."""
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

    def workers(self, server: int = 0) -> list[psutil.Process]:
        """The processes that own engines, on all nodes."""
        return [worker for process in self.nodes.values() for worker in workers_below(process.pid)]

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [*RAY, "start", "--block", "--object-store-memory=80000000", *options]
        path = self._folder / f"{len(self._processes)}.log"
        with path.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._processes.append(process)
        until = time.monotonic() + START_S
        while "Ray runtime started" not in (said := path.read_text(encoding="utf-8", errors="replace")):
            assert process.poll() is None and time.monotonic() < until, f"a node of Ray did not start: {said[-1000:]}"
            time.sleep(0.1)
        return process


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
