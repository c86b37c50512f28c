"""A stand-in for a Ray cluster of several nodes on this machine, one core each, and none on the server's node."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import psutil

FAKE_RAY = Path(__file__).parent / "fake_ray"


class FakeCluster:
    """The cluster that the package in tests/fakes/fake_ray sees in the place of Ray's."""

    def __init__(self, folder: Path) -> None:
        self._file, self._number = folder / "cluster.json", 0
        self._described: dict[str, Any] = {"nodes": {}, "refused": ""}
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

    def workers(self, server: int) -> list[psutil.Process]:
        """The processes that own engines. server: its process id."""
        found = []
        for process in psutil.Process(server).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "animegamer_rt.serving.worker" in process.cmdline():
                    found.append(process)
        return found

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
