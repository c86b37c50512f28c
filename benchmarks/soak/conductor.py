"""Injects the schedule's faults into a running server and its players."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
import zmq

from animegamer_rt.errors import ServerError

from .player import Player
from .schedule import Fault
from .served import Served

DISK_MESSAGES = {
    "disk full": "database or disk is full",
    "disk read-only": "attempt to write a readonly database",
    "disk broken": "disk I/O error",
}
STATEMENTS = ("", "BEGIN IMMEDIATE", "INSERT", "COMMIT")
"""The writes that fail during a disk fault; "": all."""
WORKER_TIMEOUT_S = 2.5
"""worker_timeout_s of the server: a worker stopped for longer is replaced."""
GARBAGE_BYTES = 4096


class Conductor:
    """`strike` injects a fault and returns when it is over."""

    def __init__(self, served: Served, players: Sequence[Player], seed: int) -> None:
        self._served, self._players = served, players
        self._chance, self._which = random.Random(f"garbage {seed}"), random.Random(f"workers {seed}")
        self._kinds: Mapping[str, Callable[[Fault], None]] = {
            "worker killed": lambda fault: self._signal_worker(signal.SIGKILL),
            "worker stopped": lambda fault: self._stop_worker(min(fault.seconds, WORKER_TIMEOUT_S / 3)),
            "worker stopped for long": lambda fault: self._stop_worker(WORKER_TIMEOUT_S + fault.seconds),
            "server killed": self._kill_server,
            "server killed, bundle damaged": self._damage_bundle,
            "server stopped": self._stop_server,
            "client vanishes": lambda fault: players[fault.player].vanish.set(),
            "client reads slowly": self._slow_client,
            "garbage": self._garbage,
            "clock jumps": lambda fault: self._write("clock", str(fault.seconds)),
            **dict.fromkeys(DISK_MESSAGES, self._break_disk),
        }

    def strike(self, fault: Fault) -> None:
        """Injects a fault and waits for its end. Raises ServerError if the server does not recover."""
        self._kinds[fault.kind](fault)

    def _signal_worker(self, number: int) -> Any:
        """Sends a signal to one of the workers; returns its process, or None if there is none."""
        workers = self._served.workers()
        worker = self._which.choice(workers) if workers else None
        if worker is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.send_signal(number)
        return worker

    def _stop_worker(self, seconds: float) -> None:
        worker = self._signal_worker(signal.SIGSTOP)
        time.sleep(seconds)
        if worker is not None and worker.is_running():
            worker.send_signal(signal.SIGCONT)

    def _stop_server(self, fault: Fault) -> None:
        self._served.signal_server(signal.SIGSTOP)
        time.sleep(fault.seconds)
        self._served.signal_server(signal.SIGCONT)

    def _kill_server(self, fault: Fault) -> None:
        self._served.kill()
        time.sleep(fault.seconds / 4)
        self._served.start()

    def _damage_bundle(self, fault: Fault) -> None:
        """Kills the server and changes a byte of the largest file of its bundle: it must refuse to start."""
        self._served.kill()
        path = max(self._served.bundle.iterdir(), key=lambda path: path.stat().st_size)
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        try:
            self._served.start()
        except ServerError as error:
            if path.name not in str(error):
                raise
        else:
            raise ServerError("the server accepted a damaged bundle", where=path)
        finally:
            path.write_bytes(whole)
        self._served.start()

    def _slow_client(self, fault: Fault) -> None:
        self._players[fault.player].slow_s = fault.seconds

    def _break_disk(self, fault: Fault) -> None:
        self._write("disk", f"{self._chance.choice(STATEMENTS)}|{DISK_MESSAGES[fault.kind]}")
        time.sleep(fault.seconds)
        (self._served.faults / "disk").unlink()

    def _garbage(self, fault: Fault) -> None:
        """Sends bytes that are not ZeroMQ to both ports, and messages that are not the protocol's."""
        for port in (self._served.port, self._served.port + 1):
            with socket.create_connection(("127.0.0.1", port), timeout=fault.seconds + 5) as plain:
                plain.sendall(self._chance.randbytes(GARBAGE_BYTES))
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = int(fault.seconds * 1000)
            dealer.connect(f"tcp://127.0.0.1:{self._served.port}")
            for parts in range(1, 5):
                dealer.send_multipart([self._chance.randbytes(self._chance.randrange(64)) for _ in range(parts)])

    def _write(self, name: str, text: str) -> None:
        path = self._served.faults / name
        path.with_suffix(".new").write_text(text, encoding="utf-8")
        path.with_suffix(".new").replace(path)
