"""OSC in: show control and tools such as TouchDesigner say, pick, reset and attract.

Knows UDP packets and the four addresses; what they do is the browser's.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from animegamer_rt.errors import ConfigError, PortInUseError

WAITING = 8
"""Messages that wait while one is carried out. Later ones are counted and dropped."""
MAX_PACKET_BYTES = 8192
MAX_TEXT, MAX_WORDS = 1000, 12
WARN_EVERY_S = 60.0
PREFIX = "/animegamer/"

log = logging.getLogger(__name__)


class Screen(Protocol):
    """What OSC drives."""

    def say(self, text: str) -> bool: ...
    def pick(self, words: list[str]) -> bool: ...
    def reset(self) -> bool: ...
    def attract(self) -> bool: ...


class OscInput:
    """Takes packets on a UDP port of loopback until `close`. `ignored`: packets and messages that meant nothing.

    Raises ConfigError without python-osc, PortInUseError for a port that another program has.
    """

    def __init__(self, port: int, screen: Screen) -> None:
        try:
            from pythonosc import osc_packet  # noqa: F401
        except ImportError as error:
            do = "run: pip install 'animegamer-rt[osc]'"
            raise ConfigError("OSC needs another package", where="osc_port", found="no python-osc", do=do) from error
        self.ignored = 0
        self._screen = screen
        self._queue: queue.Queue[Callable[[], bool]] = queue.Queue(WAITING)
        self._warned_at = -WARN_EVERY_S
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(("127.0.0.1", port))
        except OSError as error:
            self._socket.close()
            where, do = f"osc_port {port}", "choose another port in kiosk.conf"
            raise PortInUseError("the port cannot be used", where=where, found=error.strerror, do=do) from error
        self.port: int = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._carry_out)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop taking packets."""
        self._closing = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wake:
            wake.sendto(b"", ("127.0.0.1", self.port))
        self._threads[0].join(5)
        self._socket.close()

    _closing = False

    def _listen(self) -> None:
        while not self._closing:
            packet = self._socket.recv(MAX_PACKET_BYTES)
            if self._closing:
                return
            wanted = list(self._read(packet))
            if not wanted:
                self._ignore(f"a packet of {len(packet)} bytes")
            for one in wanted:
                try:
                    self._queue.put_nowait(one)
                except queue.Full:
                    self._ignore("a message: others wait")

    def _read(self, packet: bytes) -> Iterator[Callable[[], bool]]:
        """What the packet asks for. Garbage asks for nothing."""
        from pythonosc.osc_packet import OscPacket

        try:
            messages = [timed.message for timed in OscPacket(packet).messages]
        except Exception:  # noqa: BLE001  the library meets garbage with errors of several kinds
            return
        for message in messages:
            words = [word.strip() for word in message.params if isinstance(word, str) and word.strip()]
            name = message.address.removeprefix(PREFIX)
            if name == "say" and len(words) == 1 and len(words[0]) <= MAX_TEXT:
                yield lambda text=words[0]: self._screen.say(text)  # type: ignore[misc]
            elif name == "pick" and 0 < len(words) <= MAX_WORDS:
                yield lambda words=words: self._screen.pick(words)  # type: ignore[misc]
            elif name == "reset":
                yield self._screen.reset
            elif name == "attract":
                yield self._screen.attract

    def _carry_out(self) -> None:
        while not self._closing:
            try:
                wanted = self._queue.get(timeout=1.0)
            except queue.Empty:
                continue
            if not wanted():
                self._ignore("a message that the page did not take")

    def _ignore(self, what: str) -> None:
        self.ignored += 1
        now = time.monotonic()
        if now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            log.warning("OSC: ignored %s; %d in all", what, self.ignored)
