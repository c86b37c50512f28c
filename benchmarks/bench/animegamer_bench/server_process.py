"""Runs a server in a process of its own for a measurement, and reads its metrics page.

Knows how `animegamer-rt serve` is started and ended; nothing of turns.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ServerError
from animegamer_rt.profiling.child_process import child_command, describe_failure
from animegamer_rt.serving.server.config_file import print_config
from animegamer_rt.serving.server.options import ServeOptions

START_S, END_S, LOOK_S = 300.0, 30.0, 0.05
MEMORY, DROPPED = "animegamer_process_resident_memory_bytes", "animegamer_frames_dropped_total"
LIMITS = ServeOptions(turns_per_minute=0, sessions=100_000, connections=1000, queue=1000)
"""Settings with which no turn is refused."""


class ServerProcess:
    """A server with the state folder `state`; it plays turns inside `with`. start_s: longest wait for that."""

    def __init__(
        self, bundle: Path, device: str, state: Path, plan: str | None = None, start_s: float = START_S
    ) -> None:
        state.mkdir(parents=True)
        self.device, self._start_s = device, start_s
        self._outputs = state / "stdout.txt", state / "stderr.txt"
        options = replace(LIMITS, bundle=str(bundle), plan=plan, engines=EngineConfig(device), port=0, state_dir=state)
        settings = state / "serve.toml"
        settings.write_text(print_config(options), encoding="utf-8")
        command = child_command("animegamer_rt", "serve", "--config", str(settings))
        with self._outputs[0].open("wb") as output, self._outputs[1].open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, **_own_group()
            )
        self.port, self._page = 0, ""

    def __enter__(self) -> ServerProcess:
        try:
            self.port = int(self._await(0, "ready tcp://").split()[1].rpartition(":")[2])
            self._page = self._await(1, "metrics on http://").rpartition(" ")[2]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def metric(self, name: str) -> float | None:
        """A number of the metrics page, of a metric without labels; None where this system does not have it."""
        with urllib.request.urlopen(self._page, timeout=END_S) as answer:
            lines = answer.read().decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(name + " ")), None)

    def resident_mib(self) -> float | None:
        """Physical memory of the server process; None where the system does not say."""
        size = self.metric(MEMORY)
        return None if size is None else size / 2**20

    def processor_s(self) -> float:
        """Processor time that the server process has used so far, in seconds; its worker's is not in it."""
        used = psutil.Process(self._process.pid).cpu_times()
        return float(used.user + used.system)

    def _await(self, stream: int, text: str) -> str:
        until = time.monotonic() + self._start_s
        while time.monotonic() < until:
            lines = self._outputs[stream].read_text(encoding="utf-8", errors="replace").split("\n")
            found = [line for line in lines[:-1] if text in line]
            if found:
                return found[0]
            if self._process.poll() is not None:
                break
            time.sleep(LOOK_S)
        output = self._outputs[1].read_text(encoding="utf-8", errors="replace")
        raise ServerError("the server to be measured did not start", found=describe_failure(output))

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(_end_signal())
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _own_group() -> dict[str, Any]:
    """On Windows the signal that ends a server goes to a whole process group; elsewhere Ctrl-C should reach both."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {}


def _end_signal() -> int:
    if sys.platform == "win32":
        return signal.CTRL_BREAK_EVENT
    return signal.SIGTERM
