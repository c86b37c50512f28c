"""A connection shared by threads: one thread at a time owns its sockets, and reads for all that wait."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from typing import Any

import zmq

from .base_client import Wait
from .calls import Call
from .connection import Connection
from .errors import ClientError, ProtocolError
from .options import Keys
from .protocol_state import ProtocolState


class BlockingConnection(Connection):
    """One address. `start`, `wait` and `end` may be called from any thread.

    `start` takes no lock: the garbage collector also calls it, when it ends an abandoned turn, possibly in the middle
    of any other method.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], state: ProtocolState, keys: Keys | None) -> None:
        super().__init__(context, state, keys)
        self._in_use = threading.Lock()
        """Held by the thread that uses the sockets and the state."""
        self._user: int | None = None
        self._news = threading.Condition()
        self._to_start: deque[Call[Any]] = deque()
        self._ended: ClientError | None = None
        self._waker, self._woken = socket.socketpair()
        for end in (self._waker, self._woken):
            end.setblocking(False)

    def start(self, call: Call[Any]) -> None:
        """Send a call, or wake the thread with the sockets to send it. Raises ProtocolError."""
        self.state.check_size(call.request)
        self._to_start.append(call)
        self._start_or_wake()

    def wait(self, wait: Wait) -> None:
        """Wait for a message, at most `state.poll_s` seconds, and process it; or until another thread has done so."""
        if self._user == threading.get_ident():  # in a callback of a call, inside `_poll`
            self._poll()
        elif self._in_use.acquire(blocking=False):
            self._user = threading.get_ident()
            try:
                self._poll()
            finally:
                self._give_back()
        else:
            with self._news:
                if self._in_use.locked() and not wait.over:
                    self._news.wait(self.state.poll_s)

    def end(self, error: ClientError) -> None:
        """End all calls, including other threads', with this error. The sockets are not used again."""
        self._ended = error
        if self._user == threading.get_ident():
            self._start_waiting()
            return
        self._wake()
        self._in_use.acquire()
        try:
            self._start_waiting()
        finally:
            self._give_back()

    def discard(self) -> None:
        """Close the sockets for good."""
        super().discard()
        self._waker.close()
        self._woken.close()

    def _give_back(self) -> None:
        self._user = None
        self._in_use.release()
        self._start_or_wake()
        with self._news:
            self._news.notify_all()

    def _start_or_wake(self) -> None:
        """Start the waiting calls. If another thread owns the sockets, it starts them."""
        while self._to_start:
            if not self._in_use.acquire(blocking=False):
                self._wake()
                return
            try:
                self._start_waiting()
            finally:
                self._in_use.release()

    def _start_waiting(self) -> None:
        """Only with the sockets."""
        if self._ended is not None:
            self.state.fail(self._ended)
        while self._to_start:
            call = self._to_start.popleft()
            if self._ended is not None:
                call.fail(self._ended)
                continue
            try:
                super().start(call)
            except ProtocolError as error:
                call.fail(error)

    def _poll(self) -> None:
        """Only with the sockets."""
        self._start_waiting()
        if self._ended is not None:
            return
        poller = zmq.Poller()
        poller.register(self._woken.fileno(), zmq.POLLIN)
        for each in self.sockets:
            poller.register(each, zmq.POLLIN)
        poller.poll(round(1000 * self.state.poll_s))
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        self._start_waiting()
        if self._ended is None:
            self.advance()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # enough wake-ups are pending, or the client was closed meanwhile
            self._waker.send(b"\0")
