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

from animegamer_client import Client, ServerRefused
from animegamer_rt.errors import ServerError
from animegamer_rt.serving.wire.codec import SERVER_LIMITS, Message, decode, encode

from .faulty_worker import POISON
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
GARBAGE_BYTES = 4096
GREEDY_GAMES, FLOOD_CONNECTIONS = 40, 100
PATIENCE_S = 60.0
REFUSED_AFTER = 5
"""A turn that kills workers is refused within this many requests."""


class Conductor:
    """`strike` injects a fault and returns when it is over.

    worker_timeout_s: of the server: a worker stopped for longer is replaced.
    """

    def __init__(self, served: Served, players: Sequence[Player], seed: int, worker_timeout_s: float) -> None:
        self._worker_timeout_s = worker_timeout_s
        self._served, self._players = served, players
        self._address = f"tcp://127.0.0.1:{served.port}"
        self._chance, self._which = random.Random(f"garbage {seed}"), random.Random(f"workers {seed}")
        self._kinds: Mapping[str, Callable[[Fault], None]] = {
            "worker killed": lambda fault: self._signal_worker(signal.SIGKILL),
            "worker stopped": lambda fault: self._stop_worker(min(fault.seconds, self._worker_timeout_s / 3)),
            "worker wedged": lambda fault: self._wedge_worker(),
            "poison": lambda fault: self._poison(),
            "machine frozen": self._freeze,
            "greedy client": self._be_greedy,
            "page flooded": self._flood_page,
            "worker stopped for long": lambda fault: self._stop_worker(self._worker_timeout_s + fault.seconds),
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

    def _wedge_worker(self) -> None:
        """Leaves a worker no memory and no thread: it fails its turns, or dies of them."""
        workers = self._served.workers()
        if workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker = self._which.choice(workers)
                worker.rlimit(psutil.RLIMIT_AS, (worker.memory_info().vms,) * 2)

    def _poison(self) -> None:
        """Sends a turn that kills workers until it is refused. Raises ServerError if it never is."""
        with Client(self._address, timeout_s=PATIENCE_S) as client:
            game = client.open()
            for _ in range(REFUSED_AFTER):
                try:
                    list(game.turn(POISON))
                except ServerRefused as error:
                    if error.code == "worker_failed":
                        return
        raise ServerError("a turn that kills workers is not refused")

    def _freeze(self, fault: Fault) -> None:
        """Stops the server and its workers as a snapshot would. Raises ServerError if a worker does not outlive it."""
        workers = self._served.workers()
        timeout_s = self._worker_timeout_s
        for number, seconds in ((signal.SIGSTOP, timeout_s + fault.seconds), (signal.SIGCONT, timeout_s / 2)):
            self._served.signal_server(number)
            for worker in workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.send_signal(number)
            time.sleep(seconds)
        if not all(worker.is_running() for worker in workers):
            raise ServerError("a frozen machine cost a worker")

    def _be_greedy(self, fault: Fault) -> None:
        """Opens many games on one connection, sends a turn of each, and reads nothing."""
        hello = {"versions": [1], "client": "greedy"}
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(self._address)
            dealer.send_multipart(encode(Message("hello", hello, "hello")))
            for _ in range(GREEDY_GAMES):
                dealer.send_multipart(encode(Message("open", {}, "open")))
            until = time.monotonic() + fault.seconds
            while (left := until - time.monotonic()) > 0 and dealer.poll(int(1000 * left) + 1):
                message = decode(dealer.recv_multipart(), SERVER_LIMITS)
                if message.type == "opened":
                    turn = {"token": message.fields["token"], "turn_id": "greedy", "instruction": "Mia waves."}
                    dealer.send_multipart(encode(Message("turn", turn, "turn", session=message.session)))
                elif message.type == "done":
                    time.sleep(max(0.0, until - time.monotonic()))

    def _flood_page(self, fault: Fault) -> None:
        """Begins many logins on the page and ends none."""
        unending = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4000\r\n\r\n"
        with contextlib.ExitStack() as stack:
            for _ in range(FLOOD_CONNECTIONS):
                with contextlib.suppress(OSError):  # refused, as it should be
                    plain = stack.enter_context(socket.create_connection(("127.0.0.1", self._served.page), timeout=5))
                    plain.sendall(unending)
            time.sleep(fault.seconds)

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
            dealer.connect(self._address)
            for parts in range(1, 5):
                dealer.send_multipart([self._chance.randbytes(self._chance.randrange(64)) for _ in range(parts)])

    def _write(self, name: str, text: str) -> None:
        path = self._served.faults / name
        path.with_suffix(".new").write_text(text, encoding="utf-8")
        path.with_suffix(".new").replace(path)
