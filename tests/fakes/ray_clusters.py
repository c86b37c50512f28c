"""A Ray cluster of several nodes on this machine: Ray itself where it is installed, and a small one in its place.

Both have one core a node, and none on the node of the server.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from benchmarks.soak.ray_cluster import LocalRayCluster, workers_below

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

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self._door.close()


class RealCluster(LocalRayCluster):
    """Nodes started by `ray start`, all on this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.environment = dict[str, str]()

    def workers(self, server: int = 0) -> list[psutil.Process]:
        """The processes that own engines, which nodes have started."""
        return super().workers()
