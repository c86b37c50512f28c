"""A Ray cluster of several nodes on this machine: Ray itself where it is installed, and a small one in its place.

Both have one core a node, and none on the node of the server.
"""

from __future__ import annotations

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
from types import TracebackType
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
        return _workers_below(server)

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

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._door.close()


class RealCluster:
    """Nodes started by `ray start`, all on this machine."""

    def __init__(self, folder: Path) -> None:
        # Ray's sockets are in it, and their paths must be short.
        self._folder = Path(tempfile.mkdtemp(prefix="r"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address, self.environment = f"127.0.0.1:{port}", dict[str, str]()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        head = ("--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false")
        self._start(*head, "--num-cpus=0", "--disable-usage-stats")

    def add_node(self) -> str:
        return self._start(f"--address={self.address}", "--num-cpus=1")

    def kill_node(self, node: str) -> None:
        _kill_tree(self._nodes.pop(node))

    def drain(self, node: str) -> None:
        reason = ("--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test", "--deadline-remaining-seconds=60")
        subprocess.run([*RAY, "drain-node", f"--address={self.address}", f"--node-id={node}", *reason], check=True)

    def workers(self, server: int) -> list[psutil.Process]:
        """The processes that own engines, which nodes have started."""
        return [worker for node in self._nodes.values() for worker in _workers_below(node.pid)]

    def _start(self, *options: str) -> str:
        """Start a node; returns Ray's id of it."""
        command, said = [*RAY, "start", "--block", "--object-store-memory=80000000", *options], ""
        path = self._folder / f"{len(list(self._folder.glob('*.log')))}.log"
        with path.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while "Ray runtime started" not in said:
            said = path.read_text()
            assert process.poll() is None and time.monotonic() < until, said
            time.sleep(0.1)
        words = [word for one in psutil.Process(process.pid).children(recursive=True) for word in one.cmdline()]
        id = next(word for word in words if word.startswith("--node_id=")).partition("=")[2]
        self._nodes[id] = process
        return id

    def __enter__(self) -> RealCluster:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._nodes.values():
            _kill_tree(process)
        shutil.rmtree(self._folder, ignore_errors=True)


RAY = [sys.executable, "-m", "ray.scripts.scripts"]
START_S = 60.0


def _workers_below(pid: int) -> list[psutil.Process]:
    below = psutil.Process(pid).children(recursive=True)
    return [process for process in below if "animegamer_rt.serving.worker" in process.cmdline()]


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
        one.kill()
    process.wait()
