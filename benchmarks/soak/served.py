"""The server under test: started, killed, stopped, restarted on the same port, and monitored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from client.conformance.ports import ReservedPorts

from animegamer_rt.errors import ServerError

PROGRAM = Path(__file__).with_name("faulty_server.py")
START_S, END_S, LOOK_S = 180.0, 30.0, 0.05


class Served:
    """A server of `bundle` inside `with`. Files in `faults` control its disk and clock."""

    def __init__(self, bundle: Path, folder: Path, options: Sequence[str]) -> None:
        self.bundle, self.state, self.faults = bundle, folder / "state", folder / "faults"
        self.faults.mkdir(parents=True)
        (self.faults / "began").write_text(str(time.time()), encoding="utf-8")
        self._ports = ReservedPorts()
        self.port, self.page, self.starts, self.left_behind = self._ports.port, 0, 0, 0
        """`page`: the port of its web page."""
        self._options, self._folder = options, folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ports.close()

    def start(self) -> None:
        """Starts it and waits until it plays turns. Raises ServerError with its last output if it exits instead."""
        self.starts += 1
        outputs = self._folder / f"stdout-{self.starts}.txt", self._folder / f"stderr-{self.starts}.txt"
        command = [sys.executable, str(PROGRAM), str(self.faults), "serve", "--bundle", str(self.bundle)]
        command += ["--state-dir", str(self.state), "--web", "127.0.0.1:0", *self._ports.option, *self._options]
        with outputs[0].open("wb") as output, outputs[1].open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )  # a new session: Ctrl-C in the terminal reaches only the soak, which stops the server cleanly
        until = time.monotonic() + START_S
        while time.monotonic() < until and self._process.poll() is None:
            lines = outputs[0].read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
            pages = [line for line in lines if line.startswith("page http://")]
            if pages and any(line.startswith("ready tcp://") for line in lines):
                self.page = int(pages[-1].rstrip("/").rpartition(":")[2])
                return
            time.sleep(LOOK_S)
        raise ServerError("the server did not start", found=outputs[1].read_text(encoding="utf-8")[-1000:])

    def kill(self) -> None:
        """SIGKILLs the server. Its workers must exit by themselves; those that do not are counted in `left_behind`."""
        assert self._process is not None
        workers = self.workers()
        self._process.kill()
        self._process.wait()
        for worker in psutil.wait_procs(workers, END_S)[1]:
            self.left_behind += 1
            worker.kill()

    def signal_server(self, number: int) -> None:
        """Sends a signal to the server process."""
        assert self._process is not None
        self._process.send_signal(number)

    def workers(self) -> list[Any]:
        """The running worker processes, oldest first."""
        return self._children("faulty_worker")

    def _children(self, program: str) -> list[Any]:
        assert self._process is not None
        try:
            children = psutil.Process(self._process.pid).children()
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if any(program in word for word in _command(child))]

    def look(self) -> dict[str, Any] | None:
        """MiB, descriptors and threads of the server, its workers together, its gateway; size of the state folder."""
        workers, gateway = self.workers(), self._children("serving.gateway")
        if self._process is None or not workers or not gateway:
            return None
        try:
            server = _figures([psutil.Process(self._process.pid)])
            figures: dict[str, Any] = {"server": server, "worker": _figures(workers), "gateway": _figures(gateway)}
        except psutil.Error:
            return None
        sizes = {path.name: path.stat().st_size for path in _files(self.state)}
        figures["store_mib"] = round(sizes.get("sessions.sqlite", 0) / 2**20, 3)
        figures["wal_mib"] = round(sizes.get("sessions.sqlite-wal", 0) / 2**20, 3)
        figures["files"] = len(sizes)
        return figures

    def log_bytes(self) -> int:
        """Bytes of all that the servers and the last one's workers have logged."""
        return sum(path.stat().st_size for path in (*self._folder.glob("std*.txt"), *self.state.glob("*.log")))

    def last_output(self) -> str:
        """The server's last output, for a failure report."""
        return (self._folder / f"stderr-{self.starts}.txt").read_text(encoding="utf-8", errors="replace")[-3000:]


def _command(process: Any) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _figures(processes: Sequence[Any]) -> dict[str, Any]:
    pids = [process.pid for process in processes]
    return {
        "pid": pids if len(pids) > 1 else pids[0],
        "resident_mib": round(sum(process.memory_info().rss for process in processes) / 2**20, 2),
        "descriptors": sum(process.num_fds() for process in processes),
        "threads": sum(process.num_threads() for process in processes),
    }


def _files(folder: Path) -> list[Path]:
    return [Path(root) / name for root, _, names in os.walk(folder) for name in names]
